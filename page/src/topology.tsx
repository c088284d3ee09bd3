/** The fabric as a graph, with rates on its edges. */
import { path, usePlaces } from "./layout";
import { short } from "./format";
import { byPort, chosen, graph, rates, sum, type Node, type PortRates } from "./state";

const WIDTH = 150;
const HEIGHT = 40;

/** The port whose frames pass an edge. */
function portOf(one: Node, other: Node): string {
  return [one, other].find((node) => node.what === "port")?.name ?? "";
}

/** How thick a line is: a step for each factor of ten. */
function thickness(port: PortRates | undefined): number {
  const frames = (port?.tx_frames ?? 0) + (port?.rx_frames ?? 0);
  return frames < 1 ? 1 : 1.5 + Math.log10(frames) / 1.5;
}

function show(name: string) {
  chosen.value = name;
  location.hash = "ports";
}

function Box({ node, x, y }: { node: Node; x: number; y: number }) {
  const own = node.what === "port" ? byPort.value.get(node.name) : undefined;
  const lines = node.what === "link" ? rates.value?.links.filter((link) => link.name === node.name) ?? [] : [];
  const drops = own ? sum(own.drops) : lines.reduce((total, line) => total + line.drops, 0);
  const isPort = node.what === "port";
  const [title, about] = [node.name.slice(0, 20), drops ? `drops ${short(drops, "/s")}` : node.detail.slice(0, 24)];
  const open = isPort ? { role: "button" as const, tabindex: 0, onClick: () => show(node.name),
    onKeyDown: (event: KeyboardEvent) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show(node.name); } } } : {};
  return (
    <g transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`} class={`node ${node.what}`} {...(isPort ? open : { role: "img" as const, "aria-label": `${node.what} ${node.name}, ${node.detail}` })}>
      <rect width={WIDTH} height={HEIGHT} rx={node.what === "switch" ? 2 : 8} class={drops ? "dropping" : ""} />
      <text x={WIDTH / 2} y={17}>{title}</text>{" "}
      <text x={WIDTH / 2} y={32} class="small">{about}</text>
    </g>
  );
}

export function Topology() {
  const { nodes, edges } = graph.value;
  const key = JSON.stringify([nodes.map((node) => [node.what, node.name]), edges]);
  const placed = usePlaces(key, () => ({ nodes: nodes.map(() => ({ width: WIDTH, height: HEIGHT })), edges }));
  if (nodes.length === 0) return <p>There is nothing to draw.</p>;
  if (!placed) return <p role="status">The graph is being drawn.</p>;
  const { places, lines, width, height } = placed;
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Graph of the fabric">
      <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height}>
        {edges.map(([from, to], index) => {
          const name = portOf(nodes[from], nodes[to]);
          const port = byPort.value.get(name);
          const frames = (port?.tx_frames ?? 0) + (port?.rx_frames ?? 0);
          const middle = lines[index][Math.floor(lines[index].length / 2)];
          return (
            <g key={index} class="edge">
              <path d={path(lines[index])} stroke-width={thickness(port)} class={frames >= 1 ? "busy" : ""} />
              {frames >= 1 && <text x={middle.x} y={middle.y - 4} class="small">{short(frames, "/s")}</text>}
            </g>
          );
        })}
        {nodes.map((node, index) => <Box key={`${node.what} ${node.name}`} node={node} {...places[index]} />)}
      </svg>
    </div>
  );
}
