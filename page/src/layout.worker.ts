/** Places the nodes of a graph, beside the page's thread. */
import dagre from "@dagrejs/dagre";

export interface Order { number: number; nodes: { width: number; height: number }[]; edges: [number, number][] }
export interface Placed { number: number; places: { x: number; y: number }[]; lines: { x: number; y: number }[][]; width: number; height: number }

addEventListener("message", ({ data }: MessageEvent<Order>) => {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 70, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  data.nodes.forEach((node, index) => graph.setNode(String(index), { ...node }));
  data.edges.forEach(([from, to], index) => graph.setEdge(String(from), String(to), {}, String(index)));
  dagre.layout(graph);
  const places = data.nodes.map((_, index) => { const { x, y } = graph.node(String(index)); return { x, y }; });
  const lines = data.edges.map(([from, to], index) => graph.edge(String(from), String(to), String(index)).points);
  const { width = 0, height = 0 } = graph.graph();
  postMessage({ number: data.number, places, lines, width, height } as Placed);
});
