// Written by scripts/clients.py from the OpenAPI document (`ringway openapi`).

import { ControlSocket } from "./control-socket.js";

/** An action of a balancer. */
export interface Action {
  /** What it does. */
  kind: ActionKind;
  /** The VM or the host. */
  name: string;
  /** Why. */
  reason: string;
  /** The reason of a refusal; otherwise empty. */
  refused?: string;
  /** Its outcome: `reserved` is a VM that another program is to stop. */
  state?: MigrationState;
}

/** What an action does. */
export type ActionKind = "stop" | "deactivate" | "activate";

/** A guest is to go on where it has arrived. */
export interface Activation {
  /** Fingerprints of the frames that it got there, which are not delivered again, in their order. */
  delivered?: number[];
  /**
   * All frames that it got in so many nanoseconds before it stopped are in `delivered`; without it, none of them is
   * known.
   */
  known?: number | null;
  /**
   * When it stopped, in nanoseconds of the host's CLOCK_MONOTONIC, if that is known and both fabrics are on one host.
   */
  stopped?: number | null;
  /**
   * Nanoseconds between the stop and this request, if that is known and the fabrics are on two hosts. The time that the
   * request takes makes the stop later, so that no frame comes twice.
   */
  stopped_ago?: number | null;
}

/** State of a guest that arrives. */
export interface ArrivalView {
  /** The guest. */
  guest: string;
  /** Why it failed. */
  reason: string;
  /** `receiving`, `loaded`, `activating`, `active` or `failed`. */
  state: string;
  /** The socket for its memory. */
  stream: string;
  /** The attempt. */
  ticket: string;
}

/** A request for a change, and what came of it. */
export interface AuditView {
  /** Address of a client that is not on this host. */
  address?: string | null;
  /** Beginning of the body, at most 1 KiB. */
  body: string;
  /** Why it was not done, at most 1 KiB. */
  error: string;
  /** Number of requests since the entry before this one that could not be logged. */
  lost: number;
  /** Process ID of the client. */
  process?: number | null;
  /** Name of the client's program. */
  program?: string | null;
  /** Method and path. */
  request: string;
  /** Status of the answer: from 200 to 299 if it was done. */
  status: number;
  /** When it came, in nanoseconds since 1970. */
  time: number;
  /** Name of its token, if it is connected by TCP. */
  token?: string | null;
  /** User ID of the client. */
  user?: number | null;
}

/** The path of a backup. */
export interface BackupRequest {
  /** An absolute path. */
  path: string;
}

/** A round of balancing, or a preview of several. */
export interface BalanceRequest {
  /** The cluster. */
  cluster?: string;
  /** Whether it is only a preview. */
  dry_run?: boolean;
  /** Milliseconds between two rounds of a preview. */
  interval?: number;
  /** Rounds of a preview. */
  rounds?: number;
}

/** Result of a balancing round in a cluster, or its preview. */
export interface BalanceStep {
  /** Other actions of an external balancer. */
  actions?: Action[];
  /** Time in milliseconds since 1970. */
  at: number;
  /** The cluster. */
  cluster: string;
  /** External units that failed: the balancer, or one that the policy requires. */
  errors: string[];
  /** Migrations. */
  migrations: Migration[];
  /** A host to switch, and its new status. */
  power?: [string, "up" | "preparing_for_maintenance" | "maintenance" | "down" | "non_responsive"] | null;
  /** The reason; empty without a host to switch. */
  power_reason?: string;
  /** Hosts whose failure would leave highly available VMs without a host. */
  unsafe_hosts: string[];
}

/** Whether a pod was bound. */
export interface BindingResult {
  /** The error; empty if none. */
  Error: string;
}

/** A chain of functions between two ports. */
export interface ChainView {
  /** Its functions, in the order in which frames from its first port pass them. */
  functions: string[];
  /** Its name. */
  name: string;
  /** The ports at its ends. */
  ports: string[];
  /** Which function does not run, and why. */
  reason: string;
  /** `up` if all of its functions run, else `down`. */
  state: string;
}

/** A change of an object. */
export interface Changed {
  /** The time in milliseconds since 1970, to about a second; none if it was before the fabric came up. */
  at?: number | null;
  /** Whether it was deleted. */
  gone: boolean;
  /**
   * The kind of object: `host`, `vm`, `group`, `policy`, `cluster`, `load`, `fact`, `blacklist`, `pending` (a
   * reservation) or `decision`.
   */
  kind: string;
  /** Its name; of a fact its host's and its own, of a decision its number. */
  name: string;
  /** The store's revision of the change. */
  revision: u64;
  /** Its new value, in words. */
  what: string;
}

/** The changes made, in order. */
export interface Changes {
  /** Descriptions such as `add port a (ring)`. */
  changes: string[];
}

/** The choice for VMs that are placed together. */
export interface Choice {
  /** External units that failed and were left out. */
  errors: string[];
  /** The host; none if no host fits. */
  host?: string | null;
  /** Total number of hosts. */
  hosts: number;
  /** Whether memory was insufficient only because of pending VMs, so that waiting may help. */
  may_wait: boolean;
  /** Hosts that passed every filter. */
  passed: number;
  /** Their policy. */
  policy: string;
  /** The required external unit that failed, and its error: no host is chosen then. */
  refused?: string;
  /** Filters that removed hosts. */
  removed: Removed[];
  /** The best hosts, best first, twenty at most. */
  top: Scored[];
  /** The VMs. */
  vms: string[];
  /** Whether hosts were weighed: not if only one was left, or if weighing was skipped for speed. */
  weighed: boolean;
}

/** Offloads that are completed in software. */
export interface CompletionView {
  /** The first one, in hexadecimal. */
  first: string;
  /** Number of frames that result. */
  frames: number;
  /** Its length in bytes. */
  length: number;
}

/** Counters of a queue. TX is what the peer sends, RX what it receives. */
export interface Counts {
  /** Frames of the peer that were too long for their destination, and whose senders were told so. */
  answered?: number;
  /** Bursts taken. */
  bursts: number;
  /** Protocol violations by the peer. */
  faults: number;
  /** Notifications to the peer. */
  interrupts: number;
  /** Accesses that the guest's IOMMU refused. */
  iotlb_faults?: number;
  /** Addresses whose translation was known. */
  iotlb_hits?: number;
  /** Invalidations of translations. */
  iotlb_invalidations?: number;
  /** Addresses whose translation had to be requested. */
  iotlb_misses?: number;
  /** Frames for the port that became part of the frame before them: they are not in `rx_frames`. */
  joined?: number;
  /** Notifications from the peer. */
  kicks: number;
  /** Bytes by which such files grew while the port used them. */
  memory_grown?: number;
  /** Bytes in memory of the files that the front-end shares, within the shared ranges; a current value, not a total. */
  memory_resident?: number;
  /** Addresses that the peer sent from while the switch knew them at another port. */
  moved?: number;
  /** Their bytes. */
  rx_bytes: number;
  /** Dropped frames for this queue, by reason. */
  rx_drops: Record<string, number>;
  /** Frames that left the fabric here. */
  rx_frames: number;
  /** Pauses of the peer's session: it was woken too often without a message. */
  session_pauses?: number;
  /** Their bytes. */
  tx_bytes: number;
  /** Dropped frames that entered here, by reason; reasons without drops are omitted. */
  tx_drops: Record<string, number>;
  /** Frames that entered the fabric here. */
  tx_frames: number;
  /** Frames whose source address was not learned, since the port has learned too many. */
  unlearned?: number;
}

/** A client that was added. */
export interface CreatedToken {
  /** Its name. */
  name: string;
  /** Its token, if it has no certificate. It is not stored, and not shown again. */
  token?: string | null;
}

/** A decision. */
export interface DecisionView {
  /** Time of the decision. */
  at: number;
  /** The choice for each group of VMs placed together. */
  choices: Choice[];
  /** Its number; 0 if nothing was decided. */
  id: number;
  /** Whether every VM has a host. */
  placed: boolean;
  /** The store's revision at the decision. */
  revision: number;
  /** The seed that broke ties. */
  seed: number;
}

/** A function in a VM that stands still, to go on in another fabric of this host. */
export interface Departure {
  /** The number of that process's descriptor of the memory. */
  descriptor: number;
  /** Its description, as JSON of this version of the program. */
  function: string;
  /** The memory's inode, since the number may be another file's by the time it is opened. */
  inode: number;
  /** Its name. */
  name: string;
  /** The process that has its memory. */
  process: number;
  /** The state of its CPU, as JSON. */
  state: string;
}

/** A copy of a frame at its destination. */
export interface DestinationView {
  completion?: CompletionView | null;
  function?: FunctionTraceView | null;
  /** Nanoseconds that it waits at most. */
  hold: number;
  /** Whether it is joined with segments of its flow that are taken at the same time. */
  joins?: boolean;
  /** Its kind. */
  kind: string;
  link?: LinkTraceView | null;
  /** The numbers of the hops that follow. */
  next: number[];
  /** The port. */
  port: string;
  /** The number of the queue. */
  queue: number;
  /** Why it is dropped; for one that waits, why it will be if room does not come in time. */
  reason?: string | null;
  /** What becomes of its VLAN tag: `inserted 10`, `set 10`, `removed`. */
  retag?: string | null;
  /**
   * `delivered`; `dropped`; `waits`: the destination is full, and the frame waits; `busy`: it could not be looked at.
   */
  verdict: string;
}

/** One direction of an emulated link. */
export interface DirectionView {
  /** Frames sent on the wire since the settings changed. */
  carried?: number;
  /** Frames with an inverted bit. */
  corrupted: number;
  /** Mean time of a frame in the link since its settings changed, its queue included; 0 without frames. */
  delay_mean?: number;
  /** The standard deviation of that time. */
  delay_sd?: number;
  /** Dropped frames by reason; reasons without drops are omitted. */
  drops: Record<string, number>;
  /** Frames that arrived twice. */
  duplicated: number;
  /** The port that sends. */
  from: string;
  /** Frames under way. */
  in_flight: number;
  /** Frames that left more than a millisecond after their due time, since the settings changed. */
  late?: number;
  /** Nanoseconds since the last of these left; null without any. */
  late_ago?: number | null;
  /** The longest time after its due time at which a frame left, since the settings changed. */
  latest: number;
  /** How many of these were lost there. */
  lost?: number;
  /** Frames marked Congestion Experienced. */
  marked: number;
  /** Frames in its queue. */
  queued: number;
  /** Their bytes. */
  queued_bytes: number;
  /** Frames that left it, duplicates included. */
  received: number;
  /** Their bytes. */
  received_bytes: number;
  /** Frames that overtook another. */
  reordered: number;
  /** Frames that entered the link. */
  sent: number;
  /** Their bytes. */
  sent_bytes: number;
  /** The settings that differ from their defaults, in the syntax of the file. */
  settings: Record<string, string>;
  /** The port that receives. */
  to: string;
}

/** How to drain a host. */
export interface DrainRequest {
  /** VMs that move at a time, 1 to 100. */
  parallel?: number;
}

/** A host that is drained. */
export interface DrainView {
  /** The host. */
  host: string;
  /** Other VMs that are still on it. */
  left: string[];
  /** Moves that began with this request. */
  moves: Migration[];
  /** VMs that have a host reserved and are still on this one. */
  moving: string[];
  /** VMs that are not on it, but for which it is reserved. */
  reserved: string[];
  /** Its status; `maintenance` when it is empty. */
  status: HostStatus;
  /** Those that can't leave now. */
  stuck: StuckView[];
}

/** Packets that passed from one element to another. */
export interface ElementPassView {
  /** The element that they left, by its place in the list. */
  from: number;
  /** The input. */
  input: number;
  /** The output. */
  output: number;
  /** Their number. */
  packets: number;
  /** The element that they entered. */
  to: number;
}

/** An element that a frame reached. */
export interface ElementTraceView {
  /** Its class. */
  class: string;
  /** Whether what it does depends on packets that came before, so that the function that runs may do something else. */
  has_state: boolean;
  /** Packets that it dropped, or kept until the end of the trace. */
  kept: number;
  /** Its name. */
  name: string;
}

/** Why a request was not fulfilled. */
export interface ErrorBody {
  /** The error and the remedy. */
  error: string;
  /** The errors in a fabric file. */
  problems?: ProblemView[];
}

/** Something that happened. */
export interface EventView {
  /** Its number; later events have larger ones. */
  id: number;
  /** What happened, such as `peer-attached`. */
  kind: string;
  /** The port, guest or other object to which it happened; may be empty. */
  name: string;
  /** More about it, for people; may be empty. */
  text: string;
  /** When it happened, in nanoseconds since 1970. */
  time: number;
}

/** Events. */
export interface EventsView {
  /** Changes, oldest first. */
  events: Changed[];
  /** The revision for the next request. */
  revision: number;
}

/** A command for a guest. */
export interface Exec {
  /** One line for its shell, of at most 3500 bytes. */
  command: string;
  /** Time limit in seconds. */
  timeout: number;
}

/** The result of a command in a guest. */
export interface ExecView {
  /** Exit status of the shell; 143 after the time limit. */
  status: number;
  /** Its output, standard output and error. */
  text: string;
}

/** Accesses to a card's registers and its interrupts since its client connected. */
export interface ExitsView {
  /** Interrupts held back to the end of an interval. */
  held: number;
  /** The port. */
  port: string;
  /** Interrupts raised. */
  raised: number;
  /** By register; those without accesses are left out. */
  registers: RegisterView[];
  /** How often a worker found receive buffers announced. */
  rx_doorbells: number;
  /** Frames that the guest received. */
  rx_frames: number;
  /** How often a worker found frames to send announced, trapped or mapped. */
  tx_doorbells: number;
  /** Frames that the guest sent. */
  tx_frames: number;
}

/** A decision with its details. */
export interface ExplainView {
  /** The decision. */
  decision: DecisionView;
  /** Why details are missing, if they are. */
  note: string;
  /** Every host, for each group of VMs. */
  traces: Trace[];
}

/** A pod and nodes. */
export interface ExtenderArgs {
  /** Names of nodes. */
  NodeNames?: string[] | null;
  /** The pod as a Kubernetes object. */
  Pod?: Record<string, unknown>;
}

/** A pod and its node. */
export interface ExtenderBindingArgs {
  /** The node. */
  Node?: string;
  /** The pod. */
  PodName?: string;
  /** Its namespace. */
  PodNamespace?: string;
  /** Its UID. */
  PodUID?: string;
}

/** The nodes that can take a pod. */
export interface ExtenderFilterResult {
  /** The error; empty if none. */
  Error?: string;
  /** Nodes that can't take the pod even if pods are evicted, with reasons. */
  FailedAndUnresolvableNodes?: Record<string, string>;
  /** Unsuitable nodes, with reasons. */
  FailedNodes?: Record<string, string>;
  /** Suitable nodes. */
  NodeNames?: string[] | null;
}

/** The fabric as a graph: who has ports, and what joins them. */
export interface FabricGraphView {
  /** Pairs of nodes that are connected; indexes. */
  edges: ([number, number])[];
  /** Length of the sample in nanoseconds. */
  nanoseconds: number;
  /** Guests, ports, switches, links and functions. */
  nodes: FabricNode[];
}

/** A node of the fabric's graph. */
export interface FabricNode {
  /** Its kind and state; of a switch its lookup, of a link its rate and delay. */
  detail: string;
  /** Frames dropped at a port or on a link. */
  drops: number;
  /** Its name. */
  name: string;
  /** Frames that it received; those that left a link. */
  rx_frames: number;
  /**
   * Frames that the peer of a port sent during the sample; the sum over the ports of a guest, a function or a switch;
   * frames that entered a link.
   */
  tx_frames: number;
  /** `guest`, `port`, `switch`, `link` or `function`. */
  what: string;
}

/** The fabric as a whole. */
export interface FabricView {
  /** Process ID of `data`; 0 while it is being restarted. */
  data_pid: number;
  /** The file that describes it. */
  file: string;
  /** Number of functions. */
  functions?: number;
  /** Number of guests. */
  guests: number;
  /** Its name. */
  name: string;
  /** Process ID of `control`. */
  pid: number;
  /** Number of ports. */
  ports: number;
  /** Number of restarts of `data`. */
  restarts: number;
  /** Its run directory. */
  run: string;
  /** Its switches. */
  switches: SwitchView[];
  /** Nanoseconds since the fabric came up. */
  uptime: number;
  /** Version of the program. */
  version: string;
  /** Its workers. */
  workers: WorkerView[];
}

/** A fact about a host. */
export interface FactPush {
  /** The host. */
  host: string;
  /** Its name: a letter, then letters, digits and `_`. */
  name: string;
  /** Milliseconds until it expires; never if unset. */
  ttl?: number | null;
  /** The value. */
  value: number;
}

/** A filter in a policy. */
export interface FilterUse {
  /** Its name. */
  name: string;
  /** What happens if this external unit fails. */
  on_error?: OnError;
  /** When it runs. */
  position?: Position;
  /** Whether a placement fails if this external unit fails, whatever `on_error` is. */
  required?: boolean;
}

/** The number that flows have for a port. */
export interface FlowPortView {
  /** The port, which may be gone: it has this number when it comes again. */
  name: string;
  /** The number. */
  number: number;
}

/** A flow. */
export interface FlowView {
  /** Bytes of these. */
  bytes: number;
  /** Frames that it matched. */
  packets: number;
  /** The flow, as `ovs-ofctl dump-flows` shows it. */
  text: string;
}

/** A change of flow tables: all of it is made, or nothing. */
export interface FlowsChange {
  /**
   * Changes, one a line, as in a bundle of `ovs-ofctl`: `flow add FLOW`, `flow modify FLOW`, `flow delete MATCH`,
   * `group add GROUP`, `meter add METER`. `flow` and `add` may be left out. Only in `POST`.
   */
  changes?: string | null;
  /** The command of all lines of `changes`, which then have none, such as `flow delete_strict`. */
  command?: string | null;
  /** Whether nothing is changed: the answer has the difference. Only in `PUT`. */
  dry_run?: boolean;
  /** The revision that is changed; with another one, the change is refused. */
  revision?: number | null;
  /** All flows, groups and meters that there shall be, one a line. Only in `PUT`. */
  rules?: string | null;
}

/** What a change has done. */
export interface FlowsChanged {
  /** Flows that were added, changed or removed. */
  count: number;
  /** What `PUT` has changed, or would: lines that begin with `-` are gone, lines with `+` are new. */
  difference: string[];
  /** Number of the changes so far. */
  revision: number;
}

/** The flow tables of a switch. */
export interface FlowsView {
  /** The flows that are meant, by table, priority and match. */
  flows: FlowView[];
  /** The groups, as `ovs-ofctl dump-groups` shows them. */
  groups: string[];
  /** The meters. */
  meters: MeterView[];
  /** Number of flows that are not among them, since the answer would be too long. */
  omitted: number;
  /** The numbers of ports. */
  ports: FlowPortView[];
  /** Number of the changes so far. */
  revision: number;
  /** All flows, groups and meters, one a line, as `PUT` takes them; empty if they are many. */
  rules: string;
  /** The switch. */
  switch: string;
}

/** Where a function's time went. */
export interface FunctionProfileView {
  /** Its elements, if they were asked for. */
  elements: GraphElement[];
  /** Its name. */
  name: string;
  /** Nanoseconds on its worker. */
  time: number;
  /** Turns on its worker. */
  turns: number;
  /** Its worker; empty if it has a process or a VM of its own. */
  worker: string;
}

/** What a function does with a frame, as a private instance of its configuration did in simulated time. */
export interface FunctionTraceView {
  /** How it got there. */
  connections: ElementPassView[];
  /** The elements that the frame reached, from the port on. */
  elements: ElementTraceView[];
  /** The name by which its configuration knows the port. */
  input: string;
  /** The function's name. */
  name: string;
  /** Number of frames that it sends beside these. */
  omitted: number;
  /** What its elements print. */
  printed: string[];
  /** The frames that it sends. */
  sent: SentFrameView[];
  /** Its state, such as `running`. */
  state: string;
  /** Why it is not known what it does; empty if it is. */
  unknown: string;
}

/** A function. */
export interface FunctionView {
  /** The file of its configuration, or where its text comes from; `inline` if nobody said so. */
  configuration: string;
  /** The socket of its handlers, a ControlSocket. */
  handlers: string;
  /** What separates it from the rest of the fabric: `process`, `vm` or `worker`. */
  isolation?: string;
  /** Its name. */
  name: string;
  /** Process ID; 0 if it does not run. */
  pid: number;
  /** Its ports. */
  ports: string[];
  /** Why it last ended, or does not run although it should. */
  reason: string;
  /** Number of automatic restarts since it was started. */
  restarts: number;
  /**
   * `stopped`, `dormant` (it starts when it is needed), `queued` (it starts once fewer others do), `starting`,
   * `running`, `draining` (an instance that gets no new flows), `suspended`, or `ended` (and about to be restarted).
   */
  state: string;
}

/** A connection of a graph, from an output to an input; elements are indexes. */
export interface GraphConnection {
  /** The element that sends. */
  from: number;
  /** The input of the receiving element. */
  input: number;
  /** Its output. */
  output: number;
  /** Packets that passed. */
  packets: number;
  /** The element that receives. */
  to: number;
}

/** An element of a graph. */
export interface GraphElement {
  /** Its class. */
  class: string;
  /** Its name. */
  name: string;
  /** Packets that entered it; of a source, those that it emitted. */
  packets: number;
  /** Ticks of the processor's clock in it. */
  ticks: number;
}

/** The graph of a running function, with what passed during a sample. */
export interface GraphView {
  /** Its connections. */
  connections: GraphConnection[];
  /** Its elements. */
  elements: GraphElement[];
  /** Length of the sample in nanoseconds. */
  nanoseconds: number;
}

/** A port with a member of a group, or with a router. */
export interface GroupEntryView {
  /** The group's address; none for a router, which gets all groups. */
  group?: string | null;
  /** For how many more seconds, unless the member or router says it again. */
  left: number;
  /** The port. */
  port: string;
  /** The number of the VLAN; 0: none. */
  vlan: number;
}

/** The members of groups that a switch knows. */
export interface GroupsView {
  /** Its entries. */
  entries: GroupEntryView[];
  /** Whether it snoops: otherwise every port gets every group. */
  snooping: boolean;
  /** The switch. */
  switch: string;
}

/** A guest that is to arrive. */
export interface GuestArrival {
  /** `KVM` or `TCG`. */
  accelerator: string;
  /** Its kernel's command line. */
  command_line: string;
  /** Size and hash of its initial file system. */
  initrd: string;
  /** Size and hash of its kernel. */
  kernel: string;
  /** QEMU's machine type. */
  machine: string;
  /** The addresses of its interfaces. */
  macs: string[];
  /** Memory in MiB. */
  memory: number;
  /** Its name. */
  name: string;
  /** Its ports. */
  ports: MovingPort[];
  /** The model of its processor. */
  processor: string;
  /** Virtual processors. */
  processors: number;
  /** QEMU's version. */
  qemu: string;
  /** The attempt; no two have the same. */
  ticket: string;
}

/** A guest. */
export interface GuestView {
  /** The log of its console. */
  console: string;
  /** `uml` or `qemu`. */
  kind: string;
  /** Its name. */
  name: string;
  /** The runner in use, such as `QEMU with KVM`. */
  note: string;
  /** Process ID; 0 if it has no process of its own, or does not run. */
  pid: number;
  /** Its ports. */
  ports: string[];
  /**
   * Why it does not run although it should, with the last line of its console if it has ended; while it starts, what
   * that waits for.
   */
  reason: string;
  /** `stopped`, `starting`, `arriving` from another fabric, `running`, `stopping` or `ended`. */
  state: string;
}

/** A handler's value. */
export interface HandlerValue {
  /** The value; invalid UTF-8 is replaced. */
  value: string;
}

/** A frame that enters the fabric at a port. */
export interface HopView {
  /** The number of the hop before; null for the first. */
  after?: number | null;
  /** Where copies of it go. */
  destinations: DestinationView[];
  /** Why the frame is dropped at this port. */
  dropped?: string | null;
  /** What flow tables do with it: a line for each table, group and meter. */
  flows?: string[];
  /** The frame, in hexadecimal. */
  frame: string;
  /** Whether the port's frames wait now, since a function that they are for does not run yet. */
  held: boolean;
  /** What a learning switch does with the source address: `known`, `new`, `moved`, `refused`, `limited`. */
  learned?: string | null;
  /** Its length in bytes. */
  length: number;
  /**
   * What the lookup finds: `known`, `flooded`, `unknown`, `reserved`, `invalid`; `flow` where flow tables decide;
   * `patch`, `instance`, `nowhere` where there is no switch.
   */
  lookup: string;
  /** Copies for ports that mirror others. */
  mirrored?: MirroredView[];
  multicast?: MulticastView | null;
  /** Why the frame was not followed here; empty if it was. */
  note: string;
  /** Its number, from 1. */
  number: number;
  /** Number of destinations that were not looked at. */
  omitted: number;
  /** The port. */
  port: string;
  /** Whether its sender's addresses are `allowed`, or why not, if the port restricts them. */
  sender?: string | null;
  /** What it is. */
  summary: string;
  /** The switch's lookup: `learning`, `static`, `hash` or `flow`; empty without a switch. */
  table: string;
  /** What the frame passed in between, such as `function wall` or `link line`; empty for the first. */
  through: string;
  /** What the port is connected to: `switch main`, `patch b`. */
  to: string;
  /** Its VLAN, if a port of the switch has policy. */
  vlan?: number | null;
  /** The worker that serves the port. */
  worker: string;
}

/** An interface of a host. */
export interface HostInterfaceView {
  /** Its addresses, each with the length of its prefix. */
  addresses: string[];
  /** Its name in the host. */
  name: string;
  /** The port whose interface it is. */
  port: string;
  /** The port's state. */
  state: string;
}

/** A node's priority. */
export interface HostPriority {
  /** The node. */
  Host: string;
  /** Its priority, 0 to 10; higher is better. */
  Score: number;
}

/** A program of a host. */
export interface HostProgramView {
  /** The command of the shell. */
  command: string;
  /** Process ID of its shell; 0 if it does not run. */
  pid: number;
  /** How it ended. */
  reason: string;
  /** `starting`, `running` or `ended`. */
  state: string;
}

/** A host with its figures. */
export interface HostRow {
  /** Why it is blacklisted; empty if it is not. */
  blacklisted: string;
  /** Its cluster. */
  cluster: string;
  /** CPUs. */
  cpus: number;
  /** External facts that have not expired. */
  facts: Record<string, number>;
  /** Load of its CPUs in percent, including that of pending VMs. */
  load: number;
  /** Memory in MB. */
  memory_mb: number;
  /** Its name. */
  name: string;
  /** Pending VMs. */
  pending: number;
  /** Memory in MB that can still be reserved. */
  schedulable_mb: number;
  /** Whether it is in use. */
  status: HostStatus;
  /** Virtual CPUs, or the VMs' configured shares, including pending VMs. */
  vcpus: number;
  /** VMs that run. */
  vms: number;
}

/** Whether a host may run anything. */
export type HostStatus = "up" | "preparing_for_maintenance" | "maintenance" | "down" | "non_responsive";

/** A host's trace in a decision. */
export interface HostTrace {
  /** The host. */
  host: string;
  /** All filters that reject it, including those that ran later or not at all. */
  rejected: Verdict[];
  /** The filter that removed it; none if it passed. */
  removed_by?: string | null;
  /** Its total score, if it passed. */
  score?: number | null;
  /** Its scores, if it passed and hosts were weighed. */
  weights: WeightTrace[];
}

/** A host: a network namespace with interfaces of ports. */
export interface HostView {
  /** Its interfaces. */
  interfaces: HostInterfaceView[];
  /** Its name. */
  name: string;
  /** The file that keeps its namespace, as for `nsenter --net=`. */
  namespace: string;
  /** The file with the output of its programs. */
  output: string;
  /** Its programs. */
  programs: HostProgramView[];
  /** `up`, or `stopping` while processes in it are being ended: it is removed, or its programs change. */
  state: string;
}

/** The cluster that the fabric's own host is to belong to. */
export interface JoinRequest {
  /** The cluster. */
  cluster?: string;
}

/** The fabric's own host. */
export interface JoinView {
  /** Its cluster. */
  cluster: string;
  /** Its name. */
  host: string;
}

/** New settings of an emulated link. */
export interface LinkChange {
  /** The port of the direction to change; without it, both change. */
  from?: string | null;
  /** Values by key, in the syntax of the file; null for the default. Other settings stay. */
  settings: Record<string, string | null>;
}

/** The rates of a direction of a link. */
export interface LinkRates {
  /** Their bytes. */
  bytes: number;
  /** Dropped frames. */
  drops: number;
  /** Frames that left it. */
  frames: number;
  /** The port that sends. */
  from: string;
  /** The link's name. */
  name: string;
  /** Frames in its queue, now. */
  queued: number;
  /** The port that receives. */
  to: string;
}

/** What a link does with a frame. */
export interface LinkTraceView {
  /** Probability that one of its bits is inverted. */
  corrupt: number;
  /** Mean delay in nanoseconds. */
  delay: number;
  /** Why it certainly drops the frame. */
  dropped?: string | null;
  /** Probability that it arrives twice. */
  duplicate: number;
  /** The port whose frames this direction gets. */
  from: string;
  /** The deviation from it, as the settings have it. */
  jitter: number;
  /** Probability that the frame is lost. */
  loss: number;
  /** Probability that it is marked Congestion Experienced, if its transport is capable of that. */
  mark: number;
  /** The link's name. */
  name: string;
  /** Nanoseconds that it takes to send the frames that wait now. */
  queueing: number;
  /** Nanoseconds that it takes to send this one. */
  sending: number;
  /** The settings that differ from their defaults, in the syntax of the file. */
  settings: Record<string, string>;
}

/** An emulated link. */
export interface LinkView {
  /** Its two directions. */
  directions: DirectionView[];
  /** Its name. */
  name: string;
}

/** A meter. */
export interface MeterView {
  /** Frames that it dropped. */
  dropped: number;
  /** Frames that came to it. */
  packets: number;
  /** The meter, as `ovs-ofctl dump-meters` shows it. */
  text: string;
}

/** A migration. */
export interface Migration {
  /** The decision that chose the destination; 0 in a preview. */
  decision: number;
  /** Its source host. */
  from: string;
  /** Why. */
  reason: string;
  /** The reason of a refusal; otherwise empty. */
  refused?: string;
  /** Its outcome. */
  state?: MigrationState;
  /** Its destination host. */
  to: string;
  /** The VM. */
  vm: string;
}

/** An operator's decision about a guest of which nobody can say where it runs. */
export interface MigrationDecision {
  /** Where it runs from now on. */
  runs_at: MigrationEnd;
}

/** One of the two fabrics of a migration. */
export type MigrationEnd = "source" | "destination";

/** Outcome of a migration. */
export type MigrationState = "proposed" | "reserved" | "done" | "refused";

/** How far a migration is. */
export interface MigrationView {
  /** Milliseconds for which QEMU had stopped the guest. */
  downtime: number;
  /** Why it failed. */
  error: string;
  /** The guest. */
  guest: string;
  /** Bytes of memory that are left, as far as is known. */
  remaining: number;
  /** Where an operator decided that the guest runs, `source` or `destination`, if nobody could say it. */
  resolved?: string;
  /** How often changed pages were looked for. */
  rounds: number;
  /**
   * `preparing`, `copying`, `stopping`, `activating`, `asking` (whether the other fabric has activated it), and at the
   * end `done`, `failed` or `cancelled`.
   */
  stage: string;
  /** The control socket or the address of the other fabric. */
  to: string;
  /** Bytes of memory of the guest. */
  total: number;
  /** Bytes of memory that were sent. */
  transferred: number;
}

/** A copy of a frame for a port that mirrors another one. */
export interface MirroredView {
  /** Whether the frame is copied as it goes to the mirrored port, instead of as it comes from there. */
  leaves: boolean;
  /** The mirrored port. */
  of: string;
  /** The port that gets the copy. */
  port: string;
}

/** A port of a guest that is to arrive. */
export interface MovingPort {
  /** Bytes of memory that it may be given. */
  memory: number;
  /** The MTU that it offers, if it does. */
  mtu?: number | null;
  /** Its name. */
  name: string;
  /** Its queue pairs. */
  queues: number;
  /** Features that it does not offer. */
  without: string[];
}

/** Who gets a packet to a group. */
export interface MulticastView {
  /** The group's address; none for a message of IGMP or MLD. */
  group?: string | null;
  /** The ports of members and routers; none: all ports get it. */
  ports?: string[] | null;
}

/** A clone to create. */
export interface NewClone {
  /** The name of the new function. */
  name: string;
  /** Its ports, in place of those of the original, in their order: ports of kind `ring` that nobody has. */
  ports: string[];
}

/** A new configuration of a function. */
export interface NewConfiguration {
  /** The configuration, in Click's language. */
  configuration: string;
  /** Where it comes from, such as the path of a file, for people. */
  source?: string | null;
}

/** A fabric file. */
export interface NewFabric {
  /** Whether nothing is changed: the answer has the changes that would be made. */
  dry_run?: boolean;
  /** Its path, absolute: relative paths of guests' files in it are relative to its folder. */
  file: string;
  /** Its text. */
  text: string;
}

/** A function to create: its name, and the keys of `[function.NAME]`. */
export interface NewFunction {
  /** of a program: its address, such as 10.0.0.2/24, or `dhcp` */
  addresses?: string[];
  /** of a program: its arguments */
  arguments?: string[];
  /** largest number of frames that it handles at once */
  burst?: number | null;
  /** the text of its configuration */
  click?: string | null;
  /** the file of its configuration */
  config?: string | null;
  /** Its configuration, in Click's language. */
  configuration?: string;
  /** the core that it is pinned to */
  core?: number | null;
  /** its devices, and the port that each stands for */
  devices?: Record<string, string>;
  /** of a VM: `process`: it runs as a process where the host has no KVM */
  fallback?: string | null;
  /** of a program: its next hop */
  gateways?: string[];
  /** with `first-frame`: the time without frames after which it ends until the next frame for it */
  idle?: string | null;
  /** the image of a program, which runs in a VM instead */
  image?: string | null;
  /** how it multiplies under load, in a chain */
  instances?: Record<string, unknown>;
  /** what separates it from the rest of the fabric: `process`, `vm` or `worker` */
  isolation?: string | null;
  /** of a program: its MAC address */
  mac?: string | null;
  /** its memory limit */
  memory?: number | string | null;
  /** Its name. */
  name: string;
  /** the configuration's parameters, names and values */
  parameters?: Record<string, string>;
  /** a port of kind `ring` that no guest or function has */
  ports: string[];
  /** of a VM: whether snapshots of it may be taken */
  snapshots?: boolean | null;
  /** Where that comes from, such as the path of a file, for people. */
  source?: string;
  /** whether it starts at once, or with the first frame for it: `true`, `false` or `first-frame` */
  start?: string | null;
}

/** A guest to migrate. */
export interface NewMigration {
  /** Most bytes of memory that are copied in a second while the guest runs; without it, as many as possible. */
  bandwidth?: number | null;
  /** The control socket of another fabric of this host, or `ssh://[USER@]HOST[:PORT][/FABRIC]`. */
  to: string;
}

/** A port to add: its name, and the keys of `[port.NAME]`, which depend on its kind. */
export interface NewPort {
  address?: string;
  addresses?: string | number | boolean | string[] | Record<string, unknown>;
  allow?: string | number | boolean | string[] | Record<string, unknown>;
  "allow-mac"?: string | number | boolean | string[] | Record<string, unknown>;
  "burst-from"?: string | number | boolean | string[] | Record<string, unknown>;
  "burst-to"?: string | number | boolean | string[] | Record<string, unknown>;
  carrier?: string | number | boolean | string[] | Record<string, unknown>;
  checksum?: string | number | boolean | string[] | Record<string, unknown>;
  doorbells?: string;
  dscp?: string;
  encapsulation?: string;
  file?: string;
  from?: string;
  gateway?: string;
  gateways?: string | number | boolean | string[] | Record<string, unknown>;
  generic?: string | number | boolean | string[] | Record<string, unknown>;
  group?: string;
  hold?: string;
  host?: string;
  interface?: string;
  isolated?: string | number | boolean | string[] | Record<string, unknown>;
  keep?: string | number | boolean | string[] | Record<string, unknown>;
  kind: string;
  "learn-rate"?: string | number | boolean | string[] | Record<string, unknown>;
  link?: string | number | boolean | string[] | Record<string, unknown>;
  local?: string;
  "local-port"?: string | number | boolean | string[] | Record<string, unknown>;
  loop?: string | number | boolean | string[] | Record<string, unknown>;
  mac?: string;
  memory?: string;
  mirror?: string | number | boolean | string[] | Record<string, unknown>;
  "mirror-direction"?: string | number | boolean | string[] | Record<string, unknown>;
  "mirror-snap"?: string | number | boolean | string[] | Record<string, unknown>;
  "mirror-switch"?: string | number | boolean | string[] | Record<string, unknown>;
  "mirror-tag"?: string | number | boolean | string[] | Record<string, unknown>;
  "mirror-vlans"?: string | number | boolean | string[] | Record<string, unknown>;
  mode?: string;
  model?: string;
  mtu?: string | number | boolean | string[] | Record<string, unknown>;
  /** Its name. */
  name: string;
  namespace?: string;
  native?: string | number | boolean | string[] | Record<string, unknown>;
  notify?: string | number | boolean | string[] | Record<string, unknown>;
  offloads?: string | number | boolean | string[] | Record<string, unknown>;
  owner?: string;
  peer?: string;
  poll?: string;
  port?: string | number | boolean | string[] | Record<string, unknown>;
  promiscuous?: string | number | boolean | string[] | Record<string, unknown>;
  queues?: string | number | boolean | string[] | Record<string, unknown>;
  rate?: string;
  "rate-from"?: string | number | boolean | string[] | Record<string, unknown>;
  "rate-to"?: string | number | boolean | string[] | Record<string, unknown>;
  reassembly?: string | number | boolean | string[] | Record<string, unknown>;
  record?: string;
  role?: string;
  "service-tag"?: string | number | boolean | string[] | Record<string, unknown>;
  size?: string;
  "slot-size"?: string;
  slots?: string | number | boolean | string[] | Record<string, unknown>;
  socket?: string;
  "source-ports"?: string | number | boolean | string[] | Record<string, unknown>;
  speed?: string;
  storm?: string | number | boolean | string[] | Record<string, unknown>;
  switch?: string;
  tag?: string | number | boolean | string[] | Record<string, unknown>;
  techniques?: string | number | boolean | string[] | Record<string, unknown>;
  to?: string;
  trunks?: string | number | boolean | string[] | Record<string, unknown>;
  ttl?: string | number | boolean | string[] | Record<string, unknown>;
  "vlan-protocol"?: string | number | boolean | string[] | Record<string, unknown>;
  vni?: string | number | boolean | string[] | Record<string, unknown>;
  without?: string | number | boolean | string[] | Record<string, unknown>;
}

/** A snapshot to take. */
export interface NewSnapshot {
  /** Its name. */
  name: string;
}

/** A switch to add: its name, and the keys of `[switch.NAME]`. */
export interface NewSwitch {
  ageing?: string;
  entries?: string | number | boolean | string[] | Record<string, unknown>;
  flows?: string;
  "forward-reserved"?: string | number | boolean | string[] | Record<string, unknown>;
  lookup?: string;
  members?: string | number | boolean | string[] | Record<string, unknown>;
  "multicast-fast-leave"?: string | number | boolean | string[] | Record<string, unknown>;
  "multicast-snooping"?: string | number | boolean | string[] | Record<string, unknown>;
  /** Its name. */
  name: string;
  open?: string;
  "open-group"?: string;
  "open-limit"?: string | number | boolean | string[] | Record<string, unknown>;
  "refuse-moves"?: string | number | boolean | string[] | Record<string, unknown>;
  rules?: string;
  static?: string | number | boolean | string[] | Record<string, unknown>;
  uplink?: string;
}

/** A client to add. */
export interface NewToken {
  /** The hash by SHA-256 of its certificate, 64 hexadecimal digits; without it a token is made. */
  certificate?: string | null;
  /** Its name. */
  name: string;
  /** What it may do. */
  role: Role;
}

/** A frame to trace. */
export interface NewTrace {
  /** Whether its sender leaves the checksum of TCP or UDP to the host. */
  checksum_offload?: boolean;
  /**
   * The frame: its fields in the words of `ovs-ofctl`, such as `tcp,nw_dst=10.0.0.2,tp_dst=80`, or its bytes in
   * hexadecimal.
   */
  frame: string;
  /** Bytes of payload of a segment, if its sender leaves segmentation to the host. */
  gso_size?: number | null;
  /** Whether the frame is sent then, as if the port's peer had sent it. */
  inject?: boolean;
}

/** How strictly memory is bound to NUMA nodes. */
export type NumaMode = "strict" | "interleave" | "preferred";

/** What happens if an external filter fails: it raises, hangs, or is not there. */
export type OnError = "refuse" | "skip";

/** What a policy trades for speed under many requests. */
export type Optimise = "none" | "speed" | "overbooking";

/** The page for browsers. */
export interface PageView {
  /** Its address. */
  url: string;
}

/** How a VM's CPUs are bound. */
export type Pinning = "none" | "manual" | "resize_and_pin_numa" | "dedicated" | "isolate_threads";

/** VMs to place, all or none. */
export interface PlaceRequest {
  /** Unknown VMs: added first, or only tried. */
  new?: Vm[];
  /** If not empty, only these hosts may be chosen. */
  only?: string[];
  /** Policy to use instead of their own. */
  policy?: string | null;
  /** Seed that breaks ties; chosen at random if unset. */
  seed?: number | null;
  /** Whether the host a VM runs on may be chosen. */
  stay?: boolean;
  /** Names of known VMs. */
  vms?: string[];
  /** Hosts that must not be chosen. */
  without?: string[];
}

/** Sources of external units: folders and addresses. */
export interface PluginsView {
  /** Those attached by an operator. */
  attached: string[];
  /** Those of the fabric's file. */
  file: string[];
  /** Errors: files that fail to load, hosts that fail to start. */
  problems: string[];
}

/** A policy. */
export interface Policy {
  /** Its balancer. */
  balancer?: string;
  /** Its filters. */
  filters?: FilterUse[];
  /** Its name. */
  name?: string;
  /** What the policy trades for speed under many requests. */
  optimise?: Optimise;
  /** Custom properties. */
  properties?: Record<string, string>;
  /** How weights become a choice. */
  selector?: Selector;
  /** Its weights. */
  weights?: WeightUse[];
}

/** New values of keys of a port; null for the default. Other keys stay. */
export interface PortChange {
  allow?: string | number | boolean | (string | number)[] | null;
  "allow-mac"?: string | number | boolean | (string | number)[] | null;
  "burst-from"?: string | number | boolean | (string | number)[] | null;
  "burst-to"?: string | number | boolean | (string | number)[] | null;
  isolated?: string | number | boolean | (string | number)[] | null;
  "learn-rate"?: string | number | boolean | (string | number)[] | null;
  mirror?: string | number | boolean | (string | number)[] | null;
  "mirror-direction"?: string | number | boolean | (string | number)[] | null;
  "mirror-snap"?: string | number | boolean | (string | number)[] | null;
  "mirror-switch"?: string | number | boolean | (string | number)[] | null;
  "mirror-tag"?: string | number | boolean | (string | number)[] | null;
  "mirror-vlans"?: string | number | boolean | (string | number)[] | null;
  native?: string | number | boolean | (string | number)[] | null;
  "rate-from"?: string | number | boolean | (string | number)[] | null;
  "rate-to"?: string | number | boolean | (string | number)[] | null;
  reassembly?: string | number | boolean | (string | number)[] | null;
  "service-tag"?: string | number | boolean | (string | number)[] | null;
  storm?: string | number | boolean | (string | number)[] | null;
  tag?: string | number | boolean | (string | number)[] | null;
  trunks?: string | number | boolean | (string | number)[] | null;
  "vlan-protocol"?: string | number | boolean | (string | number)[] | null;
}

/** Traffic of a VM or function. */
export interface PortNeed {
  /** Megabits a second. */
  mbps?: number;
  /** The network; empty for any port. */
  network?: string;
  /** Packets a second. */
  pps?: number;
}

/** The rates of a port. */
export interface PortRates {
  /** Dropped frames since the port is there, by reason. */
  dropped: Record<string, number>;
  /** Dropped frames a second, by reason; reasons without any are omitted. */
  drops: Record<string, number>;
  /** Its name. */
  name: string;
  /** Their bytes. */
  rx_bytes: number;
  /** Frames that its peer got. */
  rx_frames: number;
  /** Its state, such as `up`. */
  state: string;
  /** Their bytes. */
  tx_bytes: number;
  /** Frames that its peer sent. */
  tx_frames: number;
}

/** Counters of a port. */
export interface PortStats {
  /** Its name. */
  name: string;
  /** By queue. */
  queues: Counts[];
  /** Sum over its queues. */
  total: Counts;
}

/** A port. */
export interface PortView {
  /** What was negotiated with the peer. */
  detail: string;
  /** Its kind. */
  kind: string;
  /** Its name. */
  name: string;
  /** Where its peer connects: a socket's path, an interface's name. */
  peer: string;
  /** What its switch lets it send and receive: the keys that `port set` changes, in the syntax of the file. */
  policy?: Record<string, string>;
  /** Why it last lost its peer, or has none. */
  reason: string;
  /** `waiting` (no peer), `attached` (a peer, not ready yet) or `up`. */
  state: string;
  /** What it is connected to: `switch main`, `patch b`; empty for a pipe. */
  to: string;
  /** The worker of its first queue; empty without one. */
  worker: string;
}

/** When a filter runs. */
export type Position = "first" | "middle" | "last";

/** An error in a fabric file. */
export interface ProblemView {
  /** Column in characters, from 1. */
  column: number;
  /** The file. */
  file: string;
  /** The remedy. */
  fix: string;
  /** Line, from 1. */
  line: number;
  /** The error. */
  what: string;
}

/** What a process has used. */
export interface ProcessView {
  /** Nanoseconds of processor time since its start, in steps of the kernel's clock ticks. */
  cpu: number;
  /** `control`, `data`, a guest's kind, or a function's isolation. */
  kind: string;
  /** Bytes of memory; of pages shared with other processes, its part. */
  memory: number;
  /** Name of the guest or function; or `control`, or `data`. */
  name: string;
  /** Process ID; 0 if it has no process of its own, or does not run: then it uses nothing of its own. */
  pid: number;
  /** Ports of the guest or function. */
  ports: string[];
}

/** Where the time of workers and functions went during a sample. */
export interface ProfileView {
  /** Functions that run on a worker, and those whose elements were asked for. */
  functions: FunctionProfileView[];
  /** Length of the sample in nanoseconds. */
  nanoseconds: number;
  /** Each worker. Its times add up to the sample. */
  workers: WorkerProfileView[];
}

/** An unmodified program with a network of its own. */
export interface ProgramView {
  /** Its addresses, each with the length of its prefix. */
  addresses: string[];
  /** Its file and its arguments. */
  command: string[];
  /** Its name. */
  name: string;
  /** The file with its output. */
  output: string;
  /** Process ID of what runs it; 0 if it does not run. */
  pid: number;
  /** Its port. */
  port: string;
  /** How it ended last, if it does not run. */
  reason: string;
  /** When it is started again: `never`, `on-failure` or `always`. */
  restart: string;
  /** How often it was started again by itself. */
  restarts: number;
  /** Whose TCP serves it: `native` or `kernel`. */
  stack: string;
  /** `running`; `stopping`; `stopped`; `waiting`, to be started again; `ended`, by itself. */
  state: string;
  /** Its user, if it has one of its own. */
  user: string;
}

/** A custom property. */
export interface PropertyView {
  /** Default value. */
  default: string;
  /** Its description. */
  description: string;
  /** Its name. */
  name: string;
  /** Regular expression that the value must match. */
  regex: string;
}

/** What passed between two readings of the counters. Rates are frames or bytes a second. */
export interface RatesView {
  /** Of both directions of every link. */
  links: LinkRates[];
  /** Of every port, in the order of the file. */
  ports: PortRates[];
  /** Time since the reading before. */
  seconds: number;
  /** When the counters were read, in nanoseconds since 1970. */
  time: number;
}

/** Accesses to a register, each an exit of the guest. */
export interface RegisterView {
  /** Whether the client may map it; accesses through the mapping are not counted. */
  mapped: boolean;
  /** Its name. */
  name: string;
  /** Reads. */
  reads: number;
  /** Writes. */
  writes: number;
}

/** A filter and the number of hosts that it removed. */
export interface Removed {
  /** The filter. */
  filter: string;
  /** Number of remaining hosts that it removed. */
  hosts: number;
}

/** A revision of the store. */
export interface RevisionView {
  /** The revision. */
  revision: number;
}

/** What a token may be used for. Each role has the rights of those before it. */
export type Role = "read" | "operate" | "admin";

/** The file that describes what runs. */
export interface SavedFabric {
  /** What the text can't describe, as the changes that lead from it to what runs; empty if it describes everything. */
  differences: string[];
  /** The path of the file that described the fabric last, to whose folder relative paths in the text are relative. */
  file: string;
  /** Its text, with what requests have changed since then. */
  text: string;
}

/** A host and its score. */
export interface Scored {
  /** The host. */
  host: string;
  /** Its score; the highest wins. */
  score: number;
}

/** How weights become a choice. */
export type Selector = "rank" | "scaled_sum" | "lowest_sum";

/** A frame that a function sends. */
export interface SentFrameView {
  /** Nanoseconds after the frame that it got. */
  after: number;
  /** The frame, in hexadecimal. */
  frame: string;
  /** The name by which its configuration knows the port. */
  port: string;
}

/** A snapshot of a function in a VM. */
export interface SnapshotView {
  /** Bytes of memory that it keeps; clones share them. */
  bytes: number;
  /** The function that it was taken of. */
  function: string;
  /** Its name. */
  name: string;
  /** The function's ports. A clone needs as many. */
  ports: string[];
}

/** A stage of bursts. Ticks, bursts and frames are of those turns that were measured, time is of all. */
export interface StageView {
  /** Bursts; of `notify`, signals. */
  bursts: number;
  /** Frames of these bursts. */
  frames: number;
  /** Its name. */
  name: string;
  /** Ticks of the processor's clock. */
  ticks: number;
  /** Nanoseconds. */
  time: number;
}

/** Counters of every port at one moment. */
export interface StatsView {
  /** The time, in nanoseconds of the host's monotonic clock. */
  at: number;
  /** By port, in the order of the file. */
  ports: PortStats[];
}

/** A host's status. */
export interface StatusView {
  /** The status. */
  status: HostStatus;
}

/** The store. */
export interface StoreView {
  /** Why it can't be written; `None` if it can. */
  full?: string | null;
  /** Its contents. */
  holds: Summary;
  /** Path of its file; the log is in the same folder. */
  path: string;
}

/** A VM that can't leave a drained host now. */
export interface StuckView {
  /** Whether it never moves, so that only its end empties the host. */
  forever: boolean;
  /** The VM. */
  vm: string;
  /** Why. */
  why: string;
}

/** Contents of a store. */
export interface Summary {
  /** Number of objects by kind, such as `host` and `decision`. */
  objects: Record<string, number>;
  /** Its revision. */
  revision: u64;
}

/** A switch. */
export interface SwitchView {
  /** Number of its flows, if its lookup is `flow`. */
  flows?: number | null;
  /** The lookup that finds a frame's port: `learning`, `static`, `hash` or `flow`. */
  lookup: string;
  /** Its name. */
  name: string;
  /** Names of its ports. */
  ports: string[];
}

/** An address that a switch knows. */
export interface TableEntryView {
  /** Seconds since it last sent; none for static entries. */
  age?: number | null;
  /** The address. */
  mac: string;
  /** The port it is behind. */
  port: string;
  /** The number of its VLAN, that of the outer tag; 0 without a tag. */
  vlan?: number;
}

/** Addresses that a switch knows. */
export interface TableView {
  /** Its entries. */
  entries: TableEntryView[];
  /** The switch. */
  switch: string;
}

/** A client of the API at its TCP address. */
export interface TokenView {
  /** The hash by SHA-256 of its certificate, if that is what it proves itself by. */
  certificate?: string | null;
  /** Its name, which the audit log has. */
  name: string;
  /** What it may do. */
  role: Role;
}

/** The full trace of the choice for VMs that are placed together. Hosts are sorted by name. */
export interface Trace {
  /** Filters in their order. */
  filters: string[];
  /** Every host. */
  hosts: HostTrace[];
  /** The VMs. */
  vms: string[];
}

/** What would become of a frame. */
export interface TraceView {
  /**
   * Whether its port would have done something else with the frame when it was sent than what the first hop says: the
   * fabric changed meanwhile.
   */
  changed: boolean;
  /** The frame, in hexadecimal. */
  frame: string;
  /**
   * Where it, and what is made of it, enters the fabric: first at its port, then behind each function or link that it
   * passes.
   */
  hops: HopView[];
  /** Number of frames that were not followed, since there are too many. */
  omitted: number;
  /** The port that the frame enters. */
  port: string;
  /** Whether the frame was sent, if that was requested. A frame for which there is no room is not sent. */
  sent?: boolean | null;
}

/** A unit that policies choose from. */
export interface UnitView {
  /** Its description. */
  description: string;
  /** Whether it is external. */
  external: boolean;
  /** `mandatory` (a filter of every policy), `filter`, `weight` or `balancer`. */
  kind: string;
  /** Its name. */
  name: string;
  /** Properties that it reads. */
  properties: PropertyView[];
}

/** What the processes of a fabric have used until one moment. */
export interface UsageView {
  /** The time, in nanoseconds of the host's monotonic clock. */
  at: number;
  /** `control`, `data`, guests, functions. */
  processes: ProcessView[];
}

/** A filter that a host does not pass, and why. */
export interface Verdict {
  /** The filter. */
  filter: string;
  /** Why the host is rejected. */
  reason: string;
}

/** A virtual machine or a function. */
export interface Vm {
  /** Aggregates its host must belong to. */
  aggregates?: string[];
  /** Its chain of functions. */
  chain?: string | null;
  /** Place in the chain, from 0. */
  chain_index?: number;
  /** Its cluster. */
  cluster?: string;
  /** Cores a socket. */
  cores?: number;
  /** CPU flags that it needs; none for the cluster's. */
  cpu_flags?: string[];
  /** Whether it has CPU passthrough. */
  cpu_passthrough?: boolean;
  /** Measured CPU usage in percent of its virtual CPUs. */
  cpu_percent?: number | null;
  /** Host devices assigned to it. */
  devices?: string[];
  /** VMs it must not share a host with (Nova's hint `different_host`). */
  different_host?: string[];
  /** Whether it is highly available. */
  ha?: boolean;
  /** Whether it is a high-performance VM. */
  high_performance?: boolean;
  /** Hooks it needs. */
  hooks?: string[];
  /** The host it runs on. */
  host?: string | null;
  /** Whether it is oVirt's self-hosted engine. */
  hosted_engine?: boolean;
  /** Hosts it is pinned to, or prefers. */
  hosts?: string[];
  /** Size in kB of the huge pages for its memory, if it uses them. */
  huge_page_kb?: number | null;
  /** Its kind. */
  kind?: VmKind;
  /** Labels, for affinity. */
  labels?: string[];
  /** The host it last ran on. */
  last_host?: string | null;
  /** Storage domain that holds its lease. */
  lease?: string | null;
  /** Its own machine type. */
  machine?: string | null;
  /** Types of mediated devices it needs. */
  mdevs?: string[];
  /** Memory. */
  memory_mb?: number;
  /** Whether it may be moved. */
  migration?: Migration;
  /** Its share of a host's CPUs, in thousandths of one, if different from its virtual CPUs. */
  milli_cpus?: number | null;
  /** When it last moved. */
  moved_at?: number | null;
  /** Its name. */
  name?: string;
  /** Network cards. */
  nics?: VmNic[];
  /** Its virtual NUMA nodes. */
  numa?: VmNumaNode[];
  /** Whether its CPUs, memory and port must be on one NUMA node. */
  numa_local?: boolean;
  /** How its CPUs are bound. */
  pinning?: Pinning;
  /** Host CPUs that manual pinning names. */
  pins?: number[];
  /** Policy instead of its cluster's. */
  policy?: string | null;
  /** Its traffic. */
  ports?: PortNeed[];
  /** Custom properties over its policy's. */
  properties?: Record<string, string>;
  /** VMs it must share a host with (Nova's hint `same_host`). */
  same_host?: string[];
  /** Virtual sockets. */
  sockets?: number;
  /** Its status. */
  status?: VmStatus;
  /** Threads a core. */
  threads?: number;
  /** Whether its time stamp counter's frequency must never change. */
  use_tsc?: boolean;
  /** Its own compatibility version. */
  version?: string | null;
}

/** Kind of a VM. */
export type VmKind = "vm" | "function";

/** A network card of a VM. */
export interface VmNic {
  /** The network; empty for none. */
  network?: string;
  /** Whether it needs an SR-IOV virtual function. */
  passthrough?: boolean;
}

/** A NUMA node that a VM sees. */
export interface VmNumaNode {
  /** Its CPUs. */
  cpus?: number;
  /** Host nodes that it is pinned to; none for any. */
  host_nodes?: number[];
  /** Its memory. */
  memory_mb?: number;
  /** How strictly the memory is bound. */
  mode?: NumaMode;
}

/** Status of a VM. */
export type VmStatus = "down" | "up" | "paused" | "migrating";

/** A VM with its reservation. */
export interface VmView extends Vm {
  /** The host reserved for it, until it runs there or the reservation expires. */
  reserved?: string | null;
}

/** The score of a host by one weight. */
export interface WeightTrace {
  /** The weight's factor. */
  factor: number;
  /** The selector's value before the factor: the rank, or the scaled score. */
  points: number;
  /** The raw score; lower is better. */
  raw: number;
  /** The weight. */
  weight: string;
}

/** A weight in a policy. */
export interface WeightUse {
  /** Its factor. */
  factor: number;
  /** Its name. */
  name: string;
  /** Whether a placement fails if this external unit fails. */
  required?: boolean;
}

/** Why a host would or would not run a VM. */
export interface WhyNot {
  /** The host that would be chosen. */
  best?: string | null;
  /** Its score. */
  best_score?: number | null;
  /** Hosts that are better. */
  better: number;
  /** Whether the host would be chosen. */
  chosen: boolean;
  /** External units that failed and were left out. */
  errors?: string[];
  /** The host. */
  host: string;
  /** The required external unit that failed, and its error: no host would be chosen then. */
  refused?: string;
  /** Filters that reject it. */
  rejected: Verdict[];
  /** Its score. */
  score?: number | null;
  /** The VM. */
  vm: string;
  /** Its scores. */
  weights: WeightTrace[];
}

/** A VM and a host. */
export interface WhyNotRequest {
  /** The host. */
  host: string;
  /** The VM. */
  request: PlaceRequest;
}

/** Where a worker's time went, in nanoseconds. */
export interface WorkerProfileView {
  /** In functions. */
  functions: number;
  /** Polling without a frame. */
  idle: number;
  /** Its name. */
  name: string;
  /** Asleep. */
  slept: number;
  /** The stages of bursts. */
  stages: StageView[];
}

/** A worker. */
export interface WorkerView {
  /** Number of queues that it polls now. */
  active: number;
  /** Nanoseconds of turns in which frames moved. */
  busy: number;
  /** Its name. */
  name: string;
  /**
   * The NUMA node that it and its ports' memory are on: the configured one, or on a host with several that of its core.
   */
  node?: number | null;
  /** A problem with it; empty if there is none. */
  note?: string;
  /** Number of queues that it serves. */
  queues: number;
  /** Times it went to sleep. */
  sleeps: number;
  /** Turns since its start. */
  turns: number;
}

export type u64 = number;

/** The operations of the control API, over a control socket. */
export class Api {
  constructor(socket: ControlSocket);
  /** The health: errors, one per line, if any. */
  healthz(): Promise<string>;
  /** Metrics of the fabric in Prometheus' text format. */
  metrics(): Promise<string>;
  /**
   * Lets a function of another fabric of this host go on here, with its state. This fabric needs ring ports of the same
   * names that nobody has.
   */
  arriveFunction(body: Departure): Promise<void>;
  /** Requests for changes, and what came of them; oldest first. */
  audit(query?: { count?: number | null }): Promise<AuditView[]>;
  /** Every chain of functions. */
  chains(): Promise<ChainView[]>;
  /** What has happened in the fabric, oldest first; as a stream, also what happens from now on. */
  fabricEvents(query?: { after?: number | null; count?: number | null; follow?: boolean | null }): Promise<EventView[]>;
  /** The fabric as a whole. */
  fabric(): Promise<FabricView>;
  /** Changes the fabric to the state described by a file, one change at a time. An invalid file changes nothing. */
  putFabric(body: NewFabric): Promise<Changes>;
  /** The file that describes what runs: the last one, with what requests have changed since then. */
  savedFabric(): Promise<SavedFabric>;
  /** Every function. */
  functions(): Promise<FunctionView[]>;
  /**
   * Creates a function and starts it. It exists only if its configuration starts; a refused request changes nothing.
   */
  createFunction(body: NewFunction): Promise<void>;
  /** Stops a function and forgets it. */
  destroyFunction(name: string): Promise<void>;
  /**
   * Replaces the configuration of a running function; elements of the same name and class keep their state. A refused
   * configuration changes nothing.
   */
  updateFunction(name: string, body: NewConfiguration): Promise<void>;
  /**
   * Stops a function in a VM between two frames, so that it can go on in another fabric of this host, to which the
   * answer is posted as an arrival. It is suspended: resuming it lets it go on here after all, removing it ends it.
   */
  departFunction(name: string): Promise<Departure>;
  /** Counts a running function's packets for a while. Returns its graph. */
  functionGraph(name: string, query?: { seconds?: number | null }): Promise<GraphView>;
  /** The function's graph as an SVG drawing. */
  functionSvg(name: string, query?: { seconds?: number | null }): Promise<string>;
  /** Reads a handler of a function. */
  readHandler(name: string, handler: string): Promise<HandlerValue>;
  /** Writes a handler of a function. */
  writeHandler(name: string, handler: string, body: HandlerValue): Promise<void>;
  /** Lets a suspended function go on. */
  resumeFunction(name: string): Promise<void>;
  /**
   * Takes a snapshot of a function in a VM, which runs on. It is kept in memory until it is removed, or the fabric goes
   * down.
   */
  snapshotFunction(name: string, body: NewSnapshot): Promise<void>;
  /** Starts a function. Its configuration runs after the answer. */
  startFunction(name: string): Promise<void>;
  /** Stops a function. Its process ends after the answer. */
  stopFunction(name: string): Promise<void>;
  /** Suspends a function: its process keeps its state, and its ports drop frames once their rings are full. */
  suspendFunction(name: string): Promise<void>;
  /** The whole fabric as a graph, with what passes during a sample. */
  fabricGraph(query?: { seconds?: number | null }): Promise<FabricGraphView>;
  /** The fabric's graph as an SVG drawing. */
  fabricSvg(query?: { seconds?: number | null }): Promise<string>;
  /**
   * Checks a guest that is to arrive from another fabric, and starts a QEMU that waits for it. The ports of the guest
   * send nothing until it is activated. A refused guest changes nothing.
   */
  prepareGuest(body: GuestArrival): Promise<ArrivalView>;
  /** State of a guest that arrives, or has arrived. */
  arrivingGuest(name: string, ticket: string): Promise<ArrivalView>;
  /** Gives up a guest that arrives. The answer comes once its QEMU has ended. */
  abandonGuest(name: string, ticket: string): Promise<void>;
  /**
   * Lets a guest that has arrived go on here. The answer comes once it runs. Its former place must have stopped it, and
   * must not let it go on unless it is told that it will not run here.
   */
  activateGuest(name: string, ticket: string, body: Activation): Promise<void>;
  /** Every guest. */
  guests(): Promise<GuestView[]>;
  /** Runs a shell command in a guest. The answer comes when the command has ended. */
  exec(name: string, body: Exec): Promise<ExecView>;
  /**
   * Moves a running QEMU guest to another fabric, whose file describes the same guest. The answer comes once that
   * fabric has checked and prepared it; a refused migration changes nothing.
   */
  migrateGuest(name: string, body: NewMigration): Promise<MigrationView>;
  /** How far the last migration of a guest from here is. */
  guestMigration(name: string): Promise<MigrationView>;
  /**
   * Asks to end a migration: the guest runs on here. It is ended when the stage says so; it may be too late. A guest
   * that arrives here, and was not activated, is given up.
   */
  cancelGuestMigration(name: string): Promise<void>;
  /**
   * Decides where a guest runs of which the other fabric does not say whether it runs there (stage `asking`), because
   * it is lost for good. It is asked once more, and if it answers, that counts. Otherwise the guest goes on here, or is
   * ended here: a guest that runs there too runs twice, and one that does not run there is lost.
   */
  resolveGuestMigration(name: string, body: MigrationDecision): Promise<MigrationView>;
  /** Starts a guest. It boots after the answer. */
  startGuest(name: string): Promise<void>;
  /** Stops a guest. It powers off after the answer. */
  stopGuest(name: string): Promise<void>;
  /** Every host, with its interfaces and programs. */
  fabricHosts(): Promise<HostView[]>;
  /** Every emulated link, with its settings and counters. */
  links(): Promise<LinkView[]>;
  /**
   * Changes settings of an emulated link while it runs. Frames under way arrive as before. A wrong value changes
   * nothing.
   */
  setLink(name: string, body: LinkChange): Promise<LinkView>;
  /** Where the page for browsers is. */
  page(): Promise<PageView>;
  /** Decides where VMs run, and reserves their resources. */
  decide(body: PlaceRequest): Promise<DecisionView>;
  /** The last rounds of balancing in which something happened, newest first. */
  rounds(): Promise<BalanceStep[]>;
  /** A round of balancing, carried out, or a preview of several. */
  balance(body: BalanceRequest): Promise<BalanceStep[]>;
  /** The newest decisions, newest first. */
  decisions(query?: { count?: number | null }): Promise<DecisionView[]>;
  /** A decision's details, repeated at its revision. */
  explain(id: number): Promise<ExplainView>;
  /**
   * Events: objects added, changed or deleted, reservations, decisions; oldest first. To follow, repeat the request
   * with the answer's revision.
   */
  events(query?: { after?: number | null; count?: number | null; measurements?: boolean | null }): Promise<EventsView>;
  /**
   * A filter that leaves only the node with the highest priority, so that kube-scheduler rates none: one request a pod,
   * in place of `filter` and `prioritize`.
   */
  best(body: ExtenderArgs): Promise<ExtenderFilterResult>;
  /**
   * Binds a pod to a node, here and in Kubernetes, with the requests from the last `filter` or `prioritize`, or those
   * of the VM `NAMESPACE.NAME`. Refused if Kubernetes is not watched.
   */
  bind(body: ExtenderBindingArgs): Promise<BindingResult>;
  /** Filters nodes for kube-scheduler. */
  filter(body: ExtenderArgs): Promise<ExtenderFilterResult>;
  /** Rates nodes for kube-scheduler. */
  prioritize(body: ExtenderArgs): Promise<HostPriority[]>;
  /** Sets facts about hosts. The next decision uses them. */
  facts(body: FactPush[]): Promise<RevisionView>;
  /** Deletes a fact about a host. */
  removeFact(host: string, name: string): Promise<void>;
  /** Places a guest or a function of the fabric file on this host, and starts it. */
  placeGuest(name: string): Promise<DecisionView>;
  /** Every host, with its remaining resources. */
  hosts(): Promise<HostRow[]>;
  /** Ends a host's maintenance. */
  activate(name: string): Promise<StatusView>;
  /** Puts a host into maintenance and moves its VMs away, some at a time. Repeat the request to follow it. */
  drain(name: string, body: DrainRequest): Promise<DrainView>;
  /**
   * Puts a host into maintenance: it gets no new VMs, balancing rounds migrate its VMs, and it is in maintenance when
   * it is empty.
   */
  maintain(name: string): Promise<StatusView>;
  /** The objects that were added, as they are now. */
  listObjects(query?: { kind?: string | null }): Promise<(Record<string, unknown>)[]>;
  /** Adds or replaces objects, all or none: clusters, policies, hosts, loads, facts, blacklist entries, VMs, groups. */
  objects(body: (Record<string, unknown>)[]): Promise<RevisionView>;
  /** Deletes an unused object. Deleting a host deletes its measurements. */
  remove(kind: string, name: string): Promise<void>;
  /** The sources of external units, with their errors. */
  attached(): Promise<PluginsView>;
  /**
   * Attaches external units in addition to those of the fabric file, replacing those attached before: folders of Python
   * plugins, services in any language. They stay attached when the fabric is restarted.
   */
  plugins(body: unknown): Promise<UnitView[]>;
  /** Every policy. */
  policies(): Promise<Policy[]>;
  /** A policy. */
  policy(name: string): Promise<Policy>;
  /** The store: its path, its contents, whether the disk is full. */
  store(): Promise<StoreView>;
  /** Writes a backup of the store to a file of the fabric's host, replacing it. */
  backup(body: BackupRequest): Promise<StoreView>;
  /** Adds the fabric's own host to a cluster, so that VMs are placed on it too. */
  join(body: JoinRequest): Promise<JoinView>;
  /** Decides where VMs would run, with a full trace, without a reservation. */
  attempt(body: PlaceRequest): Promise<ExplainView>;
  /** Every unit that policies choose from. */
  units(): Promise<UnitView[]>;
  /** Every VM, with its reservation. */
  vms(): Promise<VmView[]>;
  /** Confirms that a VM runs where it was placed. */
  confirm(name: string): Promise<void>;
  /** Releases a VM's reservation. */
  release(name: string): Promise<void>;
  /** Why a host would or would not run VMs. */
  whyNot(body: WhyNotRequest): Promise<WhyNot>;
  /** Every port, in the order of the file. */
  ports(): Promise<PortView[]>;
  /** Adds a port. A wrong request changes nothing. */
  addPort(body: NewPort): Promise<void>;
  /** Removes a port, and sends its peer away. */
  removePort(name: string): Promise<void>;
  /** Changes what a switch lets a port send and receive, while frames pass. A wrong request changes nothing. */
  setPort(name: string, body: PortChange): Promise<PortView>;
  /** Turns a port's carrier off: its driver sees a disconnected cable, and no frames pass. */
  carrierOff(name: string): Promise<void>;
  /** Accesses to the registers of a port's card, and its interrupts, since its client connected. */
  exits(name: string): Promise<ExitsView>;
  /** Says what would become of a frame that the peer of a port sent, with no effect; or sends it too. */
  traceFrame(name: string, body: NewTrace): Promise<TraceView>;
  /** Turns a port's carrier on, as the file may say it by `carrier`. */
  carrierOn(name: string): Promise<void>;
  /** Measures for a while where the time of workers and functions goes. */
  profile(query?: { seconds?: number | null; elements?: boolean | null }): Promise<ProfileView>;
  /** Every program. */
  programs(): Promise<ProgramView[]>;
  /** Asks to end, and starts again, a program. */
  restartProgram(name: string): Promise<void>;
  /** Starts a program. */
  startProgram(name: string): Promise<void>;
  /** Asks to end a program. */
  stopProgram(name: string): Promise<void>;
  /**
   * Rates of ports and links each second, as a stream of server-sent events named `rates`. A client that reads slowly
   * misses some.
   */
  rates(): Promise<string>;
  /** Takes the fabric down. The answer comes when that is done. */
  shutdown(): Promise<void>;
  /** Every snapshot. */
  snapshots(): Promise<SnapshotView[]>;
  /** Removes a snapshot. Its clones run on. */
  forgetSnapshot(name: string): Promise<void>;
  /**
   * Creates a function that goes on from a snapshot, and shares its memory until it writes it. Its restarts go on from
   * there too.
   */
  cloneSnapshot(name: string, body: NewClone): Promise<void>;
  /** Counters of every port. Reading them costs the data path nothing. */
  stats(): Promise<StatsView>;
  /** Every switch. */
  switches(): Promise<SwitchView[]>;
  /** Adds a switch. A wrong request changes nothing. */
  addSwitch(body: NewSwitch): Promise<void>;
  /** Removes a switch that has no ports. */
  removeSwitch(name: string): Promise<void>;
  /** The flow tables of a switch, with what is counted. */
  flows(name: string, query?: { filter?: string | null }): Promise<FlowsView>;
  /** Makes the rules of the request those of a switch, at once. What stays keeps what was counted. */
  replaceFlows(name: string, body: FlowsChange): Promise<FlowsChanged>;
  /** Changes flows, groups and meters of a switch while frames pass: all changes at once, or none. */
  changeFlows(name: string, body: FlowsChange): Promise<FlowsChanged>;
  /** The members of groups that a switch knows, if it snoops. */
  groups(name: string): Promise<GroupsView>;
  /** The addresses that a switch knows. */
  table(name: string): Promise<TableView>;
  /** The clients of the API at its TCP address, without their tokens, which are not stored. */
  tokens(): Promise<TokenView[]>;
  /** Adds a client. Its token is in the answer, and nowhere else. */
  addToken(body: NewToken): Promise<CreatedToken>;
  /** Removes a client; its next request is refused. */
  removeToken(name: string): Promise<void>;
  /** Processor time and memory of every guest, function and process of the fabric. */
  usage(): Promise<UsageView>;
}
