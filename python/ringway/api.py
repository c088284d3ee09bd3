"""The control API of a fabric: a type for each schema, a method for each operation.

Written by scripts/clients.py from the OpenAPI document (`ringway openapi`).
"""
# fmt: off

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from .control_socket import ControlSocket

ActionKind = Literal["stop", "deactivate", "activate"]
"""What an action does."""

HostStatus = Literal["up", "preparing_for_maintenance", "maintenance", "down", "non_responsive"]
"""Whether a host may run anything."""

MigrationEnd = Literal["source", "destination"]
"""One of the two fabrics of a migration."""

MigrationState = Literal["proposed", "reserved", "done", "refused"]
"""Outcome of a migration."""

NumaMode = Literal["strict", "interleave", "preferred"]
"""How strictly memory is bound to NUMA nodes."""

OnError = Literal["refuse", "skip"]
"""What happens if an external filter fails: it raises, hangs, or is not there."""

Optimise = Literal["none", "speed", "overbooking"]
"""What a policy trades for speed under many requests."""

Pinning = Literal["none", "manual", "resize_and_pin_numa", "dedicated", "isolate_threads"]
"""How a VM's CPUs are bound."""

Position = Literal["first", "middle", "last"]
"""When a filter runs."""

Role = Literal["read", "operate", "admin"]
"""What a token may be used for. Each role has the rights of those before it."""

Selector = Literal["rank", "scaled_sum", "lowest_sum"]
"""How weights become a choice."""

VmKind = Literal["vm", "function"]
"""Kind of a VM."""

VmStatus = Literal["down", "up", "paused", "migrating"]
"""Status of a VM."""

u64 = int


class Action(TypedDict):
    """An action of a balancer."""

    kind: ActionKind
    """What it does."""
    name: str
    """The VM or the host."""
    reason: str
    """Why."""
    refused: NotRequired[str]
    """The reason of a refusal; otherwise empty."""
    state: NotRequired[MigrationState]
    """Its outcome: `reserved` is a VM that another program is to stop."""


class Activation(TypedDict):
    """A guest is to go on where it has arrived."""

    delivered: NotRequired[list[int]]
    """Fingerprints of the frames that it got there, which are not delivered again, in their order."""
    known: NotRequired[int | None]
    """All frames that it got in so many nanoseconds before it stopped are in `delivered`; without it, none of
    them is known.
    """
    stopped: NotRequired[int | None]
    """When it stopped, in nanoseconds of the host's CLOCK_MONOTONIC, if that is known and both fabrics are on
    one host.
    """
    stopped_ago: NotRequired[int | None]
    """Nanoseconds between the stop and this request, if that is known and the fabrics are on two hosts. The
    time that the request takes makes the stop later, so that no frame comes twice.
    """


class ArrivalView(TypedDict):
    """State of a guest that arrives."""

    guest: str
    """The guest."""
    reason: str
    """Why it failed."""
    state: str
    """`receiving`, `loaded`, `activating`, `active` or `failed`."""
    stream: str
    """The socket for its memory."""
    ticket: str
    """The attempt."""


class AuditView(TypedDict):
    """A request for a change, and what came of it."""

    address: NotRequired[str | None]
    """Address of a client that is not on this host."""
    body: str
    """Beginning of the body, at most 1 KiB."""
    error: str
    """Why it was not done, at most 1 KiB."""
    lost: int
    """Number of requests since the entry before this one that could not be logged."""
    process: NotRequired[int | None]
    """Process ID of the client."""
    program: NotRequired[str | None]
    """Name of the client's program."""
    request: str
    """Method and path."""
    status: int
    """Status of the answer: from 200 to 299 if it was done."""
    time: int
    """When it came, in nanoseconds since 1970."""
    token: NotRequired[str | None]
    """Name of its token, if it is connected by TCP."""
    user: NotRequired[int | None]
    """User ID of the client."""


class BackupRequest(TypedDict):
    """The path of a backup."""

    path: str
    """An absolute path."""


class BalanceRequest(TypedDict):
    """A round of balancing, or a preview of several."""

    cluster: NotRequired[str]
    """The cluster."""
    dry_run: NotRequired[bool]
    """Whether it is only a preview."""
    interval: NotRequired[int]
    """Milliseconds between two rounds of a preview."""
    rounds: NotRequired[int]
    """Rounds of a preview."""


class BalanceStep(TypedDict):
    """Result of a balancing round in a cluster, or its preview."""

    actions: NotRequired[list[Action]]
    """Other actions of an external balancer."""
    at: int
    """Time in milliseconds since 1970."""
    cluster: str
    """The cluster."""
    errors: list[str]
    """External units that failed: the balancer, or one that the policy requires."""
    migrations: list[Migration]
    """Migrations."""
    power: NotRequired[list[str | Literal["up", "preparing_for_maintenance", "maintenance", "down", "non_responsive"]] | None]
    """A host to switch, and its new status."""
    power_reason: NotRequired[str]
    """The reason; empty without a host to switch."""
    unsafe_hosts: list[str]
    """Hosts whose failure would leave highly available VMs without a host."""


class BindingResult(TypedDict):
    """Whether a pod was bound."""

    Error: str
    """The error; empty if none."""


class ChainView(TypedDict):
    """A chain of functions between two ports."""

    functions: list[str]
    """Its functions, in the order in which frames from its first port pass them."""
    name: str
    """Its name."""
    ports: list[str]
    """The ports at its ends."""
    reason: str
    """Which function does not run, and why."""
    state: str
    """`up` if all of its functions run, else `down`."""


class Changed(TypedDict):
    """A change of an object."""

    at: NotRequired[int | None]
    """The time in milliseconds since 1970, to about a second; none if it was before the fabric came up."""
    gone: bool
    """Whether it was deleted."""
    kind: str
    """The kind of object: `host`, `vm`, `group`, `policy`, `cluster`, `load`, `fact`, `blacklist`, `pending`
    (a reservation) or `decision`.
    """
    name: str
    """Its name; of a fact its host's and its own, of a decision its number."""
    revision: u64
    """The store's revision of the change."""
    what: str
    """Its new value, in words."""


class Changes(TypedDict):
    """The changes made, in order."""

    changes: list[str]
    """Descriptions such as `add port a (ring)`."""


class Choice(TypedDict):
    """The choice for VMs that are placed together."""

    errors: list[str]
    """External units that failed and were left out."""
    host: NotRequired[str | None]
    """The host; none if no host fits."""
    hosts: int
    """Total number of hosts."""
    may_wait: bool
    """Whether memory was insufficient only because of pending VMs, so that waiting may help."""
    passed: int
    """Hosts that passed every filter."""
    policy: str
    """Their policy."""
    refused: NotRequired[str]
    """The required external unit that failed, and its error: no host is chosen then."""
    removed: list[Removed]
    """Filters that removed hosts."""
    top: list[Scored]
    """The best hosts, best first, twenty at most."""
    vms: list[str]
    """The VMs."""
    weighed: bool
    """Whether hosts were weighed: not if only one was left, or if weighing was skipped for speed."""


class CompletionView(TypedDict):
    """Offloads that are completed in software."""

    first: str
    """The first one, in hexadecimal."""
    frames: int
    """Number of frames that result."""
    length: int
    """Its length in bytes."""


class Counts(TypedDict):
    """Counters of a queue. TX is what the peer sends, RX what it receives."""

    answered: NotRequired[int]
    """Frames of the peer that were too long for their destination, and whose senders were told so."""
    bursts: int
    """Bursts taken."""
    faults: int
    """Protocol violations by the peer."""
    interrupts: int
    """Notifications to the peer."""
    iotlb_faults: NotRequired[int]
    """Accesses that the guest's IOMMU refused."""
    iotlb_hits: NotRequired[int]
    """Addresses whose translation was known."""
    iotlb_invalidations: NotRequired[int]
    """Invalidations of translations."""
    iotlb_misses: NotRequired[int]
    """Addresses whose translation had to be requested."""
    joined: NotRequired[int]
    """Frames for the port that became part of the frame before them: they are not in `rx_frames`."""
    kicks: int
    """Notifications from the peer."""
    memory_grown: NotRequired[int]
    """Bytes by which such files grew while the port used them."""
    memory_resident: NotRequired[int]
    """Bytes in memory of the files that the front-end shares, within the shared ranges; a current value, not a
    total.
    """
    moved: NotRequired[int]
    """Addresses that the peer sent from while the switch knew them at another port."""
    rx_bytes: int
    """Their bytes."""
    rx_drops: dict[str, int]
    """Dropped frames for this queue, by reason."""
    rx_frames: int
    """Frames that left the fabric here."""
    session_pauses: NotRequired[int]
    """Pauses of the peer's session: it was woken too often without a message."""
    tx_bytes: int
    """Their bytes."""
    tx_drops: dict[str, int]
    """Dropped frames that entered here, by reason; reasons without drops are omitted."""
    tx_frames: int
    """Frames that entered the fabric here."""
    unlearned: NotRequired[int]
    """Frames whose source address was not learned, since the port has learned too many."""


class CreatedToken(TypedDict):
    """A client that was added."""

    name: str
    """Its name."""
    token: NotRequired[str | None]
    """Its token, if it has no certificate. It is not stored, and not shown again."""


class DecisionView(TypedDict):
    """A decision."""

    at: int
    """Time of the decision."""
    choices: list[Choice]
    """The choice for each group of VMs placed together."""
    id: int
    """Its number; 0 if nothing was decided."""
    placed: bool
    """Whether every VM has a host."""
    revision: int
    """The store's revision at the decision."""
    seed: int
    """The seed that broke ties."""


class Departure(TypedDict):
    """A function in a VM that stands still, to go on in another fabric of this host."""

    descriptor: int
    """The number of that process's descriptor of the memory."""
    function: str
    """Its description, as JSON of this version of the program."""
    inode: int
    """The memory's inode, since the number may be another file's by the time it is opened."""
    name: str
    """Its name."""
    process: int
    """The process that has its memory."""
    state: str
    """The state of its CPU, as JSON."""


class DestinationView(TypedDict):
    """A copy of a frame at its destination."""

    completion: NotRequired[CompletionView | None]
    function: NotRequired[FunctionTraceView | None]
    hold: int
    """Nanoseconds that it waits at most."""
    joins: NotRequired[bool]
    """Whether it is joined with segments of its flow that are taken at the same time."""
    kind: str
    """Its kind."""
    link: NotRequired[LinkTraceView | None]
    next: list[int]
    """The numbers of the hops that follow."""
    port: str
    """The port."""
    queue: int
    """The number of the queue."""
    reason: NotRequired[str | None]
    """Why it is dropped; for one that waits, why it will be if room does not come in time."""
    retag: NotRequired[str | None]
    """What becomes of its VLAN tag: `inserted 10`, `set 10`, `removed`."""
    verdict: str
    """`delivered`; `dropped`; `waits`: the destination is full, and the frame waits; `busy`: it could not be
    looked at.
    """


DirectionView = TypedDict(
    "DirectionView",
    {
        "carried": "NotRequired[int]",
        "corrupted": "int",
        "delay_mean": "NotRequired[int]",
        "delay_sd": "NotRequired[int]",
        "drops": "dict[str, int]",
        "duplicated": "int",
        "from": "str",
        "in_flight": "int",
        "late": "NotRequired[int]",
        "late_ago": "NotRequired[int | None]",
        "latest": "int",
        "lost": "NotRequired[int]",
        "marked": "int",
        "queued": "int",
        "queued_bytes": "int",
        "received": "int",
        "received_bytes": "int",
        "reordered": "int",
        "sent": "int",
        "sent_bytes": "int",
        "settings": "dict[str, str]",
        "to": "str",
    },
)
"""One direction of an emulated link."""

class DrainRequest(TypedDict):
    """How to drain a host."""

    parallel: NotRequired[int]
    """VMs that move at a time, 1 to 100."""


class DrainView(TypedDict):
    """A host that is drained."""

    host: str
    """The host."""
    left: list[str]
    """Other VMs that are still on it."""
    moves: list[Migration]
    """Moves that began with this request."""
    moving: list[str]
    """VMs that have a host reserved and are still on this one."""
    reserved: list[str]
    """VMs that are not on it, but for which it is reserved."""
    status: HostStatus
    """Its status; `maintenance` when it is empty."""
    stuck: list[StuckView]
    """Those that can't leave now."""


ElementPassView = TypedDict(
    "ElementPassView",
    {
        "from": "int",
        "input": "int",
        "output": "int",
        "packets": "int",
        "to": "int",
    },
)
"""Packets that passed from one element to another."""

ElementTraceView = TypedDict(
    "ElementTraceView",
    {
        "class": "str",
        "has_state": "bool",
        "kept": "int",
        "name": "str",
    },
)
"""An element that a frame reached."""

class ErrorBody(TypedDict):
    """Why a request was not fulfilled."""

    error: str
    """The error and the remedy."""
    problems: NotRequired[list[ProblemView]]
    """The errors in a fabric file."""


class EventView(TypedDict):
    """Something that happened."""

    id: int
    """Its number; later events have larger ones."""
    kind: str
    """What happened, such as `peer-attached`."""
    name: str
    """The port, guest or other object to which it happened; may be empty."""
    text: str
    """More about it, for people; may be empty."""
    time: int
    """When it happened, in nanoseconds since 1970."""


class EventsView(TypedDict):
    """Events."""

    events: list[Changed]
    """Changes, oldest first."""
    revision: int
    """The revision for the next request."""


class Exec(TypedDict):
    """A command for a guest."""

    command: str
    """One line for its shell, of at most 3500 bytes."""
    timeout: int
    """Time limit in seconds."""


class ExecView(TypedDict):
    """The result of a command in a guest."""

    status: int
    """Exit status of the shell; 143 after the time limit."""
    text: str
    """Its output, standard output and error."""


class ExitsView(TypedDict):
    """Accesses to a card's registers and its interrupts since its client connected."""

    held: int
    """Interrupts held back to the end of an interval."""
    port: str
    """The port."""
    raised: int
    """Interrupts raised."""
    registers: list[RegisterView]
    """By register; those without accesses are left out."""
    rx_doorbells: int
    """How often a worker found receive buffers announced."""
    rx_frames: int
    """Frames that the guest received."""
    tx_doorbells: int
    """How often a worker found frames to send announced, trapped or mapped."""
    tx_frames: int
    """Frames that the guest sent."""


class ExplainView(TypedDict):
    """A decision with its details."""

    decision: DecisionView
    """The decision."""
    note: str
    """Why details are missing, if they are."""
    traces: list[Trace]
    """Every host, for each group of VMs."""


class ExtenderArgs(TypedDict):
    """A pod and nodes."""

    NodeNames: NotRequired[list[str] | None]
    """Names of nodes."""
    Pod: NotRequired[dict[str, Any]]
    """The pod as a Kubernetes object."""


class ExtenderBindingArgs(TypedDict):
    """A pod and its node."""

    Node: NotRequired[str]
    """The node."""
    PodName: NotRequired[str]
    """The pod."""
    PodNamespace: NotRequired[str]
    """Its namespace."""
    PodUID: NotRequired[str]
    """Its UID."""


class ExtenderFilterResult(TypedDict):
    """The nodes that can take a pod."""

    Error: NotRequired[str]
    """The error; empty if none."""
    FailedAndUnresolvableNodes: NotRequired[dict[str, str]]
    """Nodes that can't take the pod even if pods are evicted, with reasons."""
    FailedNodes: NotRequired[dict[str, str]]
    """Unsuitable nodes, with reasons."""
    NodeNames: NotRequired[list[str] | None]
    """Suitable nodes."""


class FabricGraphView(TypedDict):
    """The fabric as a graph: who has ports, and what joins them."""

    edges: list[list[int]]
    """Pairs of nodes that are connected; indexes."""
    nanoseconds: int
    """Length of the sample in nanoseconds."""
    nodes: list[FabricNode]
    """Guests, ports, switches, links and functions."""


class FabricNode(TypedDict):
    """A node of the fabric's graph."""

    detail: str
    """Its kind and state; of a switch its lookup, of a link its rate and delay."""
    drops: int
    """Frames dropped at a port or on a link."""
    name: str
    """Its name."""
    rx_frames: int
    """Frames that it received; those that left a link."""
    tx_frames: int
    """Frames that the peer of a port sent during the sample; the sum over the ports of a guest, a function or
    a switch; frames that entered a link.
    """
    what: str
    """`guest`, `port`, `switch`, `link` or `function`."""


class FabricView(TypedDict):
    """The fabric as a whole."""

    data_pid: int
    """Process ID of `data`; 0 while it is being restarted."""
    file: str
    """The file that describes it."""
    functions: NotRequired[int]
    """Number of functions."""
    guests: int
    """Number of guests."""
    name: str
    """Its name."""
    pid: int
    """Process ID of `control`."""
    ports: int
    """Number of ports."""
    restarts: int
    """Number of restarts of `data`."""
    run: str
    """Its run directory."""
    switches: list[SwitchView]
    """Its switches."""
    uptime: int
    """Nanoseconds since the fabric came up."""
    version: str
    """Version of the program."""
    workers: list[WorkerView]
    """Its workers."""


class FactPush(TypedDict):
    """A fact about a host."""

    host: str
    """The host."""
    name: str
    """Its name: a letter, then letters, digits and `_`."""
    ttl: NotRequired[int | None]
    """Milliseconds until it expires; never if unset."""
    value: float
    """The value."""


class FilterUse(TypedDict):
    """A filter in a policy."""

    name: str
    """Its name."""
    on_error: NotRequired[OnError]
    """What happens if this external unit fails."""
    position: NotRequired[Position]
    """When it runs."""
    required: NotRequired[bool]
    """Whether a placement fails if this external unit fails, whatever `on_error` is."""


class FlowPortView(TypedDict):
    """The number that flows have for a port."""

    name: str
    """The port, which may be gone: it has this number when it comes again."""
    number: int
    """The number."""


class FlowView(TypedDict):
    """A flow."""

    bytes: int
    """Bytes of these."""
    packets: int
    """Frames that it matched."""
    text: str
    """The flow, as `ovs-ofctl dump-flows` shows it."""


class FlowsChange(TypedDict):
    """A change of flow tables: all of it is made, or nothing."""

    changes: NotRequired[str | None]
    """Changes, one a line, as in a bundle of `ovs-ofctl`: `flow add FLOW`, `flow modify FLOW`, `flow delete
    MATCH`, `group add GROUP`, `meter add METER`. `flow` and `add` may be left out. Only in `POST`.
    """
    command: NotRequired[str | None]
    """The command of all lines of `changes`, which then have none, such as `flow delete_strict`."""
    dry_run: NotRequired[bool]
    """Whether nothing is changed: the answer has the difference. Only in `PUT`."""
    revision: NotRequired[int | None]
    """The revision that is changed; with another one, the change is refused."""
    rules: NotRequired[str | None]
    """All flows, groups and meters that there shall be, one a line. Only in `PUT`."""


class FlowsChanged(TypedDict):
    """What a change has done."""

    count: int
    """Flows that were added, changed or removed."""
    difference: list[str]
    """What `PUT` has changed, or would: lines that begin with `-` are gone, lines with `+` are new."""
    revision: int
    """Number of the changes so far."""


class FlowsView(TypedDict):
    """The flow tables of a switch."""

    flows: list[FlowView]
    """The flows that are meant, by table, priority and match."""
    groups: list[str]
    """The groups, as `ovs-ofctl dump-groups` shows them."""
    meters: list[MeterView]
    """The meters."""
    omitted: int
    """Number of flows that are not among them, since the answer would be too long."""
    ports: list[FlowPortView]
    """The numbers of ports."""
    revision: int
    """Number of the changes so far."""
    rules: str
    """All flows, groups and meters, one a line, as `PUT` takes them; empty if they are many."""
    switch: str
    """The switch."""


class FunctionProfileView(TypedDict):
    """Where a function's time went."""

    elements: list[GraphElement]
    """Its elements, if they were asked for."""
    name: str
    """Its name."""
    time: int
    """Nanoseconds on its worker."""
    turns: int
    """Turns on its worker."""
    worker: str
    """Its worker; empty if it has a process or a VM of its own."""


class FunctionTraceView(TypedDict):
    """What a function does with a frame, as a private instance of its configuration did in simulated time.
    """

    connections: list[ElementPassView]
    """How it got there."""
    elements: list[ElementTraceView]
    """The elements that the frame reached, from the port on."""
    input: str
    """The name by which its configuration knows the port."""
    name: str
    """The function's name."""
    omitted: int
    """Number of frames that it sends beside these."""
    printed: list[str]
    """What its elements print."""
    sent: list[SentFrameView]
    """The frames that it sends."""
    state: str
    """Its state, such as `running`."""
    unknown: str
    """Why it is not known what it does; empty if it is."""


class FunctionView(TypedDict):
    """A function."""

    configuration: str
    """The file of its configuration, or where its text comes from; `inline` if nobody said so."""
    handlers: str
    """The socket of its handlers, a ControlSocket."""
    isolation: NotRequired[str]
    """What separates it from the rest of the fabric: `process`, `vm` or `worker`."""
    name: str
    """Its name."""
    pid: int
    """Process ID; 0 if it does not run."""
    ports: list[str]
    """Its ports."""
    reason: str
    """Why it last ended, or does not run although it should."""
    restarts: int
    """Number of automatic restarts since it was started."""
    state: str
    """`stopped`, `dormant` (it starts when it is needed), `queued` (it starts once fewer others do),
    `starting`, `running`, `draining` (an instance that gets no new flows), `suspended`, or `ended` (and
    about to be restarted).
    """


GraphConnection = TypedDict(
    "GraphConnection",
    {
        "from": "int",
        "input": "int",
        "output": "int",
        "packets": "int",
        "to": "int",
    },
)
"""A connection of a graph, from an output to an input; elements are indexes."""

GraphElement = TypedDict(
    "GraphElement",
    {
        "class": "str",
        "name": "str",
        "packets": "int",
        "ticks": "int",
    },
)
"""An element of a graph."""

class GraphView(TypedDict):
    """The graph of a running function, with what passed during a sample."""

    connections: list[GraphConnection]
    """Its connections."""
    elements: list[GraphElement]
    """Its elements."""
    nanoseconds: int
    """Length of the sample in nanoseconds."""


class GroupEntryView(TypedDict):
    """A port with a member of a group, or with a router."""

    group: NotRequired[str | None]
    """The group's address; none for a router, which gets all groups."""
    left: int
    """For how many more seconds, unless the member or router says it again."""
    port: str
    """The port."""
    vlan: int
    """The number of the VLAN; 0: none."""


class GroupsView(TypedDict):
    """The members of groups that a switch knows."""

    entries: list[GroupEntryView]
    """Its entries."""
    snooping: bool
    """Whether it snoops: otherwise every port gets every group."""
    switch: str
    """The switch."""


class GuestArrival(TypedDict):
    """A guest that is to arrive."""

    accelerator: str
    """`KVM` or `TCG`."""
    command_line: str
    """Its kernel's command line."""
    initrd: str
    """Size and hash of its initial file system."""
    kernel: str
    """Size and hash of its kernel."""
    machine: str
    """QEMU's machine type."""
    macs: list[str]
    """The addresses of its interfaces."""
    memory: int
    """Memory in MiB."""
    name: str
    """Its name."""
    ports: list[MovingPort]
    """Its ports."""
    processor: str
    """The model of its processor."""
    processors: int
    """Virtual processors."""
    qemu: str
    """QEMU's version."""
    ticket: str
    """The attempt; no two have the same."""


class GuestView(TypedDict):
    """A guest."""

    console: str
    """The log of its console."""
    kind: str
    """`uml` or `qemu`."""
    name: str
    """Its name."""
    note: str
    """The runner in use, such as `QEMU with KVM`."""
    pid: int
    """Process ID; 0 if it has no process of its own, or does not run."""
    ports: list[str]
    """Its ports."""
    reason: str
    """Why it does not run although it should, with the last line of its console if it has ended; while it
    starts, what that waits for.
    """
    state: str
    """`stopped`, `starting`, `arriving` from another fabric, `running`, `stopping` or `ended`."""


class HandlerValue(TypedDict):
    """A handler's value."""

    value: str
    """The value; invalid UTF-8 is replaced."""


class HopView(TypedDict):
    """A frame that enters the fabric at a port."""

    after: NotRequired[int | None]
    """The number of the hop before; null for the first."""
    destinations: list[DestinationView]
    """Where copies of it go."""
    dropped: NotRequired[str | None]
    """Why the frame is dropped at this port."""
    flows: NotRequired[list[str]]
    """What flow tables do with it: a line for each table, group and meter."""
    frame: str
    """The frame, in hexadecimal."""
    held: bool
    """Whether the port's frames wait now, since a function that they are for does not run yet."""
    learned: NotRequired[str | None]
    """What a learning switch does with the source address: `known`, `new`, `moved`, `refused`, `limited`.
    """
    length: int
    """Its length in bytes."""
    lookup: str
    """What the lookup finds: `known`, `flooded`, `unknown`, `reserved`, `invalid`; `flow` where flow tables
    decide; `patch`, `instance`, `nowhere` where there is no switch.
    """
    mirrored: NotRequired[list[MirroredView]]
    """Copies for ports that mirror others."""
    multicast: NotRequired[MulticastView | None]
    note: str
    """Why the frame was not followed here; empty if it was."""
    number: int
    """Its number, from 1."""
    omitted: int
    """Number of destinations that were not looked at."""
    port: str
    """The port."""
    sender: NotRequired[str | None]
    """Whether its sender's addresses are `allowed`, or why not, if the port restricts them."""
    summary: str
    """What it is."""
    table: str
    """The switch's lookup: `learning`, `static`, `hash` or `flow`; empty without a switch."""
    through: str
    """What the frame passed in between, such as `function wall` or `link line`; empty for the first."""
    to: str
    """What the port is connected to: `switch main`, `patch b`."""
    vlan: NotRequired[int | None]
    """Its VLAN, if a port of the switch has policy."""
    worker: str
    """The worker that serves the port."""


class HostInterfaceView(TypedDict):
    """An interface of a host."""

    addresses: list[str]
    """Its addresses, each with the length of its prefix."""
    name: str
    """Its name in the host."""
    port: str
    """The port whose interface it is."""
    state: str
    """The port's state."""


class HostPriority(TypedDict):
    """A node's priority."""

    Host: str
    """The node."""
    Score: int
    """Its priority, 0 to 10; higher is better."""


class HostProgramView(TypedDict):
    """A program of a host."""

    command: str
    """The command of the shell."""
    pid: int
    """Process ID of its shell; 0 if it does not run."""
    reason: str
    """How it ended."""
    state: str
    """`starting`, `running` or `ended`."""


class HostRow(TypedDict):
    """A host with its figures."""

    blacklisted: str
    """Why it is blacklisted; empty if it is not."""
    cluster: str
    """Its cluster."""
    cpus: int
    """CPUs."""
    facts: dict[str, float]
    """External facts that have not expired."""
    load: float
    """Load of its CPUs in percent, including that of pending VMs."""
    memory_mb: int
    """Memory in MB."""
    name: str
    """Its name."""
    pending: int
    """Pending VMs."""
    schedulable_mb: int
    """Memory in MB that can still be reserved."""
    status: HostStatus
    """Whether it is in use."""
    vcpus: float
    """Virtual CPUs, or the VMs' configured shares, including pending VMs."""
    vms: int
    """VMs that run."""


class HostTrace(TypedDict):
    """A host's trace in a decision."""

    host: str
    """The host."""
    rejected: list[Verdict]
    """All filters that reject it, including those that ran later or not at all."""
    removed_by: NotRequired[str | None]
    """The filter that removed it; none if it passed."""
    score: NotRequired[float | None]
    """Its total score, if it passed."""
    weights: list[WeightTrace]
    """Its scores, if it passed and hosts were weighed."""


class HostView(TypedDict):
    """A host: a network namespace with interfaces of ports."""

    interfaces: list[HostInterfaceView]
    """Its interfaces."""
    name: str
    """Its name."""
    namespace: str
    """The file that keeps its namespace, as for `nsenter --net=`."""
    output: str
    """The file with the output of its programs."""
    programs: list[HostProgramView]
    """Its programs."""
    state: str
    """`up`, or `stopping` while processes in it are being ended: it is removed, or its programs change."""


class JoinRequest(TypedDict):
    """The cluster that the fabric's own host is to belong to."""

    cluster: NotRequired[str]
    """The cluster."""


class JoinView(TypedDict):
    """The fabric's own host."""

    cluster: str
    """Its cluster."""
    host: str
    """Its name."""


LinkChange = TypedDict(
    "LinkChange",
    {
        "from": "NotRequired[str | None]",
        "settings": "dict[str, str | None]",
    },
)
"""New settings of an emulated link."""

LinkRates = TypedDict(
    "LinkRates",
    {
        "bytes": "float",
        "drops": "float",
        "frames": "float",
        "from": "str",
        "name": "str",
        "queued": "int",
        "to": "str",
    },
)
"""The rates of a direction of a link."""

LinkTraceView = TypedDict(
    "LinkTraceView",
    {
        "corrupt": "float",
        "delay": "int",
        "dropped": "NotRequired[str | None]",
        "duplicate": "float",
        "from": "str",
        "jitter": "int",
        "loss": "float",
        "mark": "float",
        "name": "str",
        "queueing": "int",
        "sending": "int",
        "settings": "dict[str, str]",
    },
)
"""What a link does with a frame."""

class LinkView(TypedDict):
    """An emulated link."""

    directions: list[DirectionView]
    """Its two directions."""
    name: str
    """Its name."""


class MeterView(TypedDict):
    """A meter."""

    dropped: int
    """Frames that it dropped."""
    packets: int
    """Frames that came to it."""
    text: str
    """The meter, as `ovs-ofctl dump-meters` shows it."""


Migration = TypedDict(
    "Migration",
    {
        "decision": "int",
        "from": "str",
        "reason": "str",
        "refused": "NotRequired[str]",
        "state": "NotRequired[MigrationState]",
        "to": "str",
        "vm": "str",
    },
)
"""A migration."""

class MigrationDecision(TypedDict):
    """An operator's decision about a guest of which nobody can say where it runs."""

    runs_at: MigrationEnd
    """Where it runs from now on."""


class MigrationView(TypedDict):
    """How far a migration is."""

    downtime: int
    """Milliseconds for which QEMU had stopped the guest."""
    error: str
    """Why it failed."""
    guest: str
    """The guest."""
    remaining: int
    """Bytes of memory that are left, as far as is known."""
    resolved: NotRequired[str]
    """Where an operator decided that the guest runs, `source` or `destination`, if nobody could say it."""
    rounds: int
    """How often changed pages were looked for."""
    stage: str
    """`preparing`, `copying`, `stopping`, `activating`, `asking` (whether the other fabric has activated it),
    and at the end `done`, `failed` or `cancelled`.
    """
    to: str
    """The control socket or the address of the other fabric."""
    total: int
    """Bytes of memory of the guest."""
    transferred: int
    """Bytes of memory that were sent."""


class MirroredView(TypedDict):
    """A copy of a frame for a port that mirrors another one."""

    leaves: bool
    """Whether the frame is copied as it goes to the mirrored port, instead of as it comes from there."""
    of: str
    """The mirrored port."""
    port: str
    """The port that gets the copy."""


class MovingPort(TypedDict):
    """A port of a guest that is to arrive."""

    memory: int
    """Bytes of memory that it may be given."""
    mtu: NotRequired[int | None]
    """The MTU that it offers, if it does."""
    name: str
    """Its name."""
    queues: int
    """Its queue pairs."""
    without: list[str]
    """Features that it does not offer."""


class MulticastView(TypedDict):
    """Who gets a packet to a group."""

    group: NotRequired[str | None]
    """The group's address; none for a message of IGMP or MLD."""
    ports: NotRequired[list[str] | None]
    """The ports of members and routers; none: all ports get it."""


class NewClone(TypedDict):
    """A clone to create."""

    name: str
    """The name of the new function."""
    ports: list[str]
    """Its ports, in place of those of the original, in their order: ports of kind `ring` that nobody has.
    """


class NewConfiguration(TypedDict):
    """A new configuration of a function."""

    configuration: str
    """The configuration, in Click's language."""
    source: NotRequired[str | None]
    """Where it comes from, such as the path of a file, for people."""


class NewFabric(TypedDict):
    """A fabric file."""

    dry_run: NotRequired[bool]
    """Whether nothing is changed: the answer has the changes that would be made."""
    file: str
    """Its path, absolute: relative paths of guests' files in it are relative to its folder."""
    text: str
    """Its text."""


class NewFunction(TypedDict):
    """A function to create: its name, and the keys of `[function.NAME]`."""

    addresses: NotRequired[list[str]]
    """of a program: its address, such as 10.0.0.2/24, or `dhcp`"""
    arguments: NotRequired[list[str]]
    """of a program: its arguments"""
    burst: NotRequired[int | None]
    """largest number of frames that it handles at once"""
    click: NotRequired[str | None]
    """the text of its configuration"""
    config: NotRequired[str | None]
    """the file of its configuration"""
    configuration: NotRequired[str]
    """Its configuration, in Click's language."""
    core: NotRequired[int | None]
    """the core that it is pinned to"""
    devices: NotRequired[dict[str, str]]
    """its devices, and the port that each stands for"""
    fallback: NotRequired[str | None]
    """of a VM: `process`: it runs as a process where the host has no KVM"""
    gateways: NotRequired[list[str]]
    """of a program: its next hop"""
    idle: NotRequired[str | None]
    """with `first-frame`: the time without frames after which it ends until the next frame for it"""
    image: NotRequired[str | None]
    """the image of a program, which runs in a VM instead"""
    instances: NotRequired[dict[str, Any]]
    """how it multiplies under load, in a chain"""
    isolation: NotRequired[str | None]
    """what separates it from the rest of the fabric: `process`, `vm` or `worker`"""
    mac: NotRequired[str | None]
    """of a program: its MAC address"""
    memory: NotRequired[int | str | None]
    """its memory limit"""
    name: str
    """Its name."""
    parameters: NotRequired[dict[str, str]]
    """the configuration's parameters, names and values"""
    ports: list[str]
    """a port of kind `ring` that no guest or function has"""
    snapshots: NotRequired[bool | None]
    """of a VM: whether snapshots of it may be taken"""
    source: NotRequired[str]
    """Where that comes from, such as the path of a file, for people."""
    start: NotRequired[str | None]
    """whether it starts at once, or with the first frame for it: `true`, `false` or `first-frame`"""


class NewMigration(TypedDict):
    """A guest to migrate."""

    bandwidth: NotRequired[int | None]
    """Most bytes of memory that are copied in a second while the guest runs; without it, as many as possible.
    """
    to: str
    """The control socket of another fabric of this host, or `ssh://[USER@]HOST[:PORT][/FABRIC]`."""


NewPort = TypedDict(
    "NewPort",
    {
        "address": "NotRequired[str]",
        "addresses": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "allow": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "allow-mac": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "burst-from": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "burst-to": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "carrier": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "checksum": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "doorbells": "NotRequired[str]",
        "dscp": "NotRequired[str]",
        "encapsulation": "NotRequired[str]",
        "file": "NotRequired[str]",
        "from": "NotRequired[str]",
        "gateway": "NotRequired[str]",
        "gateways": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "generic": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "group": "NotRequired[str]",
        "hold": "NotRequired[str]",
        "host": "NotRequired[str]",
        "interface": "NotRequired[str]",
        "isolated": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "keep": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "kind": "str",
        "learn-rate": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "link": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "local": "NotRequired[str]",
        "local-port": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "loop": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mac": "NotRequired[str]",
        "memory": "NotRequired[str]",
        "mirror": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mirror-direction": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mirror-snap": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mirror-switch": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mirror-tag": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mirror-vlans": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "mode": "NotRequired[str]",
        "model": "NotRequired[str]",
        "mtu": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "name": "str",
        "namespace": "NotRequired[str]",
        "native": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "notify": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "offloads": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "owner": "NotRequired[str]",
        "peer": "NotRequired[str]",
        "poll": "NotRequired[str]",
        "port": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "promiscuous": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "queues": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "rate": "NotRequired[str]",
        "rate-from": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "rate-to": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "reassembly": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "record": "NotRequired[str]",
        "role": "NotRequired[str]",
        "service-tag": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "size": "NotRequired[str]",
        "slot-size": "NotRequired[str]",
        "slots": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "socket": "NotRequired[str]",
        "source-ports": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "speed": "NotRequired[str]",
        "storm": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "switch": "NotRequired[str]",
        "tag": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "techniques": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "to": "NotRequired[str]",
        "trunks": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "ttl": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "vlan-protocol": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "vni": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "without": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
    },
)
"""A port to add: its name, and the keys of `[port.NAME]`, which depend on its kind."""

class NewSnapshot(TypedDict):
    """A snapshot to take."""

    name: str
    """Its name."""


NewSwitch = TypedDict(
    "NewSwitch",
    {
        "ageing": "NotRequired[str]",
        "entries": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "flows": "NotRequired[str]",
        "forward-reserved": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "lookup": "NotRequired[str]",
        "members": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "multicast-fast-leave": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "multicast-snooping": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "name": "str",
        "open": "NotRequired[str]",
        "open-group": "NotRequired[str]",
        "open-limit": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "refuse-moves": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "rules": "NotRequired[str]",
        "static": "NotRequired[str | int | bool | list[str] | dict[str, Any]]",
        "uplink": "NotRequired[str]",
    },
)
"""A switch to add: its name, and the keys of `[switch.NAME]`."""

class NewToken(TypedDict):
    """A client to add."""

    certificate: NotRequired[str | None]
    """The hash by SHA-256 of its certificate, 64 hexadecimal digits; without it a token is made."""
    name: str
    """Its name."""
    role: Role
    """What it may do."""


class NewTrace(TypedDict):
    """A frame to trace."""

    checksum_offload: NotRequired[bool]
    """Whether its sender leaves the checksum of TCP or UDP to the host."""
    frame: str
    """The frame: its fields in the words of `ovs-ofctl`, such as `tcp,nw_dst=10.0.0.2,tp_dst=80`, or its bytes
    in hexadecimal.
    """
    gso_size: NotRequired[int | None]
    """Bytes of payload of a segment, if its sender leaves segmentation to the host."""
    inject: NotRequired[bool]
    """Whether the frame is sent then, as if the port's peer had sent it."""


class PageView(TypedDict):
    """The page for browsers."""

    url: str
    """Its address."""


class PlaceRequest(TypedDict):
    """VMs to place, all or none."""

    new: NotRequired[list[Vm]]
    """Unknown VMs: added first, or only tried."""
    only: NotRequired[list[str]]
    """If not empty, only these hosts may be chosen."""
    policy: NotRequired[str | None]
    """Policy to use instead of their own."""
    seed: NotRequired[int | None]
    """Seed that breaks ties; chosen at random if unset."""
    stay: NotRequired[bool]
    """Whether the host a VM runs on may be chosen."""
    vms: NotRequired[list[str]]
    """Names of known VMs."""
    without: NotRequired[list[str]]
    """Hosts that must not be chosen."""


class PluginsView(TypedDict):
    """Sources of external units: folders and addresses."""

    attached: list[str]
    """Those attached by an operator."""
    file: list[str]
    """Those of the fabric's file."""
    problems: list[str]
    """Errors: files that fail to load, hosts that fail to start."""


class Policy(TypedDict):
    """A policy."""

    balancer: NotRequired[str]
    """Its balancer."""
    filters: NotRequired[list[FilterUse]]
    """Its filters."""
    name: NotRequired[str]
    """Its name."""
    optimise: NotRequired[Optimise]
    """What the policy trades for speed under many requests."""
    properties: NotRequired[dict[str, str]]
    """Custom properties."""
    selector: NotRequired[Selector]
    """How weights become a choice."""
    weights: NotRequired[list[WeightUse]]
    """Its weights."""


PortChange = TypedDict(
    "PortChange",
    {
        "allow": "NotRequired[str | int | bool | list[str | int] | None]",
        "allow-mac": "NotRequired[str | int | bool | list[str | int] | None]",
        "burst-from": "NotRequired[str | int | bool | list[str | int] | None]",
        "burst-to": "NotRequired[str | int | bool | list[str | int] | None]",
        "isolated": "NotRequired[str | int | bool | list[str | int] | None]",
        "learn-rate": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror-direction": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror-snap": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror-switch": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror-tag": "NotRequired[str | int | bool | list[str | int] | None]",
        "mirror-vlans": "NotRequired[str | int | bool | list[str | int] | None]",
        "native": "NotRequired[str | int | bool | list[str | int] | None]",
        "rate-from": "NotRequired[str | int | bool | list[str | int] | None]",
        "rate-to": "NotRequired[str | int | bool | list[str | int] | None]",
        "reassembly": "NotRequired[str | int | bool | list[str | int] | None]",
        "service-tag": "NotRequired[str | int | bool | list[str | int] | None]",
        "storm": "NotRequired[str | int | bool | list[str | int] | None]",
        "tag": "NotRequired[str | int | bool | list[str | int] | None]",
        "trunks": "NotRequired[str | int | bool | list[str | int] | None]",
        "vlan-protocol": "NotRequired[str | int | bool | list[str | int] | None]",
    },
)
"""New values of keys of a port; null for the default. Other keys stay."""

class PortNeed(TypedDict):
    """Traffic of a VM or function."""

    mbps: NotRequired[int]
    """Megabits a second."""
    network: NotRequired[str]
    """The network; empty for any port."""
    pps: NotRequired[int]
    """Packets a second."""


class PortRates(TypedDict):
    """The rates of a port."""

    dropped: dict[str, int]
    """Dropped frames since the port is there, by reason."""
    drops: dict[str, float]
    """Dropped frames a second, by reason; reasons without any are omitted."""
    name: str
    """Its name."""
    rx_bytes: float
    """Their bytes."""
    rx_frames: float
    """Frames that its peer got."""
    state: str
    """Its state, such as `up`."""
    tx_bytes: float
    """Their bytes."""
    tx_frames: float
    """Frames that its peer sent."""


class PortStats(TypedDict):
    """Counters of a port."""

    name: str
    """Its name."""
    queues: list[Counts]
    """By queue."""
    total: Counts
    """Sum over its queues."""


class PortView(TypedDict):
    """A port."""

    detail: str
    """What was negotiated with the peer."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""
    peer: str
    """Where its peer connects: a socket's path, an interface's name."""
    policy: NotRequired[dict[str, str]]
    """What its switch lets it send and receive: the keys that `port set` changes, in the syntax of the file.
    """
    reason: str
    """Why it last lost its peer, or has none."""
    state: str
    """`waiting` (no peer), `attached` (a peer, not ready yet) or `up`."""
    to: str
    """What it is connected to: `switch main`, `patch b`; empty for a pipe."""
    worker: str
    """The worker of its first queue; empty without one."""


class ProblemView(TypedDict):
    """An error in a fabric file."""

    column: int
    """Column in characters, from 1."""
    file: str
    """The file."""
    fix: str
    """The remedy."""
    line: int
    """Line, from 1."""
    what: str
    """The error."""


class ProcessView(TypedDict):
    """What a process has used."""

    cpu: int
    """Nanoseconds of processor time since its start, in steps of the kernel's clock ticks."""
    kind: str
    """`control`, `data`, a guest's kind, or a function's isolation."""
    memory: int
    """Bytes of memory; of pages shared with other processes, its part."""
    name: str
    """Name of the guest or function; or `control`, or `data`."""
    pid: int
    """Process ID; 0 if it has no process of its own, or does not run: then it uses nothing of its own."""
    ports: list[str]
    """Ports of the guest or function."""


class ProfileView(TypedDict):
    """Where the time of workers and functions went during a sample."""

    functions: list[FunctionProfileView]
    """Functions that run on a worker, and those whose elements were asked for."""
    nanoseconds: int
    """Length of the sample in nanoseconds."""
    workers: list[WorkerProfileView]
    """Each worker. Its times add up to the sample."""


class ProgramView(TypedDict):
    """An unmodified program with a network of its own."""

    addresses: list[str]
    """Its addresses, each with the length of its prefix."""
    command: list[str]
    """Its file and its arguments."""
    name: str
    """Its name."""
    output: str
    """The file with its output."""
    pid: int
    """Process ID of what runs it; 0 if it does not run."""
    port: str
    """Its port."""
    reason: str
    """How it ended last, if it does not run."""
    restart: str
    """When it is started again: `never`, `on-failure` or `always`."""
    restarts: int
    """How often it was started again by itself."""
    stack: str
    """Whose TCP serves it: `native` or `kernel`."""
    state: str
    """`running`; `stopping`; `stopped`; `waiting`, to be started again; `ended`, by itself."""
    user: str
    """Its user, if it has one of its own."""


class PropertyView(TypedDict):
    """A custom property."""

    default: str
    """Default value."""
    description: str
    """Its description."""
    name: str
    """Its name."""
    regex: str
    """Regular expression that the value must match."""


class RatesView(TypedDict):
    """What passed between two readings of the counters. Rates are frames or bytes a second."""

    links: list[LinkRates]
    """Of both directions of every link."""
    ports: list[PortRates]
    """Of every port, in the order of the file."""
    seconds: float
    """Time since the reading before."""
    time: int
    """When the counters were read, in nanoseconds since 1970."""


class RegisterView(TypedDict):
    """Accesses to a register, each an exit of the guest."""

    mapped: bool
    """Whether the client may map it; accesses through the mapping are not counted."""
    name: str
    """Its name."""
    reads: int
    """Reads."""
    writes: int
    """Writes."""


class Removed(TypedDict):
    """A filter and the number of hosts that it removed."""

    filter: str
    """The filter."""
    hosts: int
    """Number of remaining hosts that it removed."""


class RevisionView(TypedDict):
    """A revision of the store."""

    revision: int
    """The revision."""


class SavedFabric(TypedDict):
    """The file that describes what runs."""

    differences: list[str]
    """What the text can't describe, as the changes that lead from it to what runs; empty if it describes
    everything.
    """
    file: str
    """The path of the file that described the fabric last, to whose folder relative paths in the text are
    relative.
    """
    text: str
    """Its text, with what requests have changed since then."""


class Scored(TypedDict):
    """A host and its score."""

    host: str
    """The host."""
    score: float
    """Its score; the highest wins."""


class SentFrameView(TypedDict):
    """A frame that a function sends."""

    after: int
    """Nanoseconds after the frame that it got."""
    frame: str
    """The frame, in hexadecimal."""
    port: str
    """The name by which its configuration knows the port."""


class SnapshotView(TypedDict):
    """A snapshot of a function in a VM."""

    bytes: int
    """Bytes of memory that it keeps; clones share them."""
    function: str
    """The function that it was taken of."""
    name: str
    """Its name."""
    ports: list[str]
    """The function's ports. A clone needs as many."""


class StageView(TypedDict):
    """A stage of bursts. Ticks, bursts and frames are of those turns that were measured, time is of all."""

    bursts: int
    """Bursts; of `notify`, signals."""
    frames: int
    """Frames of these bursts."""
    name: str
    """Its name."""
    ticks: int
    """Ticks of the processor's clock."""
    time: int
    """Nanoseconds."""


class StatsView(TypedDict):
    """Counters of every port at one moment."""

    at: int
    """The time, in nanoseconds of the host's monotonic clock."""
    ports: list[PortStats]
    """By port, in the order of the file."""


class StatusView(TypedDict):
    """A host's status."""

    status: HostStatus
    """The status."""


class StoreView(TypedDict):
    """The store."""

    full: NotRequired[str | None]
    """Why it can't be written; `None` if it can."""
    holds: Summary
    """Its contents."""
    path: str
    """Path of its file; the log is in the same folder."""


class StuckView(TypedDict):
    """A VM that can't leave a drained host now."""

    forever: bool
    """Whether it never moves, so that only its end empties the host."""
    vm: str
    """The VM."""
    why: str
    """Why."""


class Summary(TypedDict):
    """Contents of a store."""

    objects: dict[str, int]
    """Number of objects by kind, such as `host` and `decision`."""
    revision: u64
    """Its revision."""


class SwitchView(TypedDict):
    """A switch."""

    flows: NotRequired[int | None]
    """Number of its flows, if its lookup is `flow`."""
    lookup: str
    """The lookup that finds a frame's port: `learning`, `static`, `hash` or `flow`."""
    name: str
    """Its name."""
    ports: list[str]
    """Names of its ports."""


class TableEntryView(TypedDict):
    """An address that a switch knows."""

    age: NotRequired[int | None]
    """Seconds since it last sent; none for static entries."""
    mac: str
    """The address."""
    port: str
    """The port it is behind."""
    vlan: NotRequired[int]
    """The number of its VLAN, that of the outer tag; 0 without a tag."""


class TableView(TypedDict):
    """Addresses that a switch knows."""

    entries: list[TableEntryView]
    """Its entries."""
    switch: str
    """The switch."""


class TokenView(TypedDict):
    """A client of the API at its TCP address."""

    certificate: NotRequired[str | None]
    """The hash by SHA-256 of its certificate, if that is what it proves itself by."""
    name: str
    """Its name, which the audit log has."""
    role: Role
    """What it may do."""


class Trace(TypedDict):
    """The full trace of the choice for VMs that are placed together. Hosts are sorted by name."""

    filters: list[str]
    """Filters in their order."""
    hosts: list[HostTrace]
    """Every host."""
    vms: list[str]
    """The VMs."""


class TraceView(TypedDict):
    """What would become of a frame."""

    changed: bool
    """Whether its port would have done something else with the frame when it was sent than what the first hop
    says: the fabric changed meanwhile.
    """
    frame: str
    """The frame, in hexadecimal."""
    hops: list[HopView]
    """Where it, and what is made of it, enters the fabric: first at its port, then behind each function or
    link that it passes.
    """
    omitted: int
    """Number of frames that were not followed, since there are too many."""
    port: str
    """The port that the frame enters."""
    sent: NotRequired[bool | None]
    """Whether the frame was sent, if that was requested. A frame for which there is no room is not sent."""


class UnitView(TypedDict):
    """A unit that policies choose from."""

    description: str
    """Its description."""
    external: bool
    """Whether it is external."""
    kind: str
    """`mandatory` (a filter of every policy), `filter`, `weight` or `balancer`."""
    name: str
    """Its name."""
    properties: list[PropertyView]
    """Properties that it reads."""


class UsageView(TypedDict):
    """What the processes of a fabric have used until one moment."""

    at: int
    """The time, in nanoseconds of the host's monotonic clock."""
    processes: list[ProcessView]
    """`control`, `data`, guests, functions."""


class Verdict(TypedDict):
    """A filter that a host does not pass, and why."""

    filter: str
    """The filter."""
    reason: str
    """Why the host is rejected."""


class Vm(TypedDict):
    """A virtual machine or a function."""

    aggregates: NotRequired[list[str]]
    """Aggregates its host must belong to."""
    chain: NotRequired[str | None]
    """Its chain of functions."""
    chain_index: NotRequired[int]
    """Place in the chain, from 0."""
    cluster: NotRequired[str]
    """Its cluster."""
    cores: NotRequired[int]
    """Cores a socket."""
    cpu_flags: NotRequired[list[str]]
    """CPU flags that it needs; none for the cluster's."""
    cpu_passthrough: NotRequired[bool]
    """Whether it has CPU passthrough."""
    cpu_percent: NotRequired[int | None]
    """Measured CPU usage in percent of its virtual CPUs."""
    devices: NotRequired[list[str]]
    """Host devices assigned to it."""
    different_host: NotRequired[list[str]]
    """VMs it must not share a host with (Nova's hint `different_host`)."""
    ha: NotRequired[bool]
    """Whether it is highly available."""
    high_performance: NotRequired[bool]
    """Whether it is a high-performance VM."""
    hooks: NotRequired[list[str]]
    """Hooks it needs."""
    host: NotRequired[str | None]
    """The host it runs on."""
    hosted_engine: NotRequired[bool]
    """Whether it is oVirt's self-hosted engine."""
    hosts: NotRequired[list[str]]
    """Hosts it is pinned to, or prefers."""
    huge_page_kb: NotRequired[int | None]
    """Size in kB of the huge pages for its memory, if it uses them."""
    kind: NotRequired[VmKind]
    """Its kind."""
    labels: NotRequired[list[str]]
    """Labels, for affinity."""
    last_host: NotRequired[str | None]
    """The host it last ran on."""
    lease: NotRequired[str | None]
    """Storage domain that holds its lease."""
    machine: NotRequired[str | None]
    """Its own machine type."""
    mdevs: NotRequired[list[str]]
    """Types of mediated devices it needs."""
    memory_mb: NotRequired[int]
    """Memory."""
    migration: NotRequired[Migration]
    """Whether it may be moved."""
    milli_cpus: NotRequired[int | None]
    """Its share of a host's CPUs, in thousandths of one, if different from its virtual CPUs."""
    moved_at: NotRequired[int | None]
    """When it last moved."""
    name: NotRequired[str]
    """Its name."""
    nics: NotRequired[list[VmNic]]
    """Network cards."""
    numa: NotRequired[list[VmNumaNode]]
    """Its virtual NUMA nodes."""
    numa_local: NotRequired[bool]
    """Whether its CPUs, memory and port must be on one NUMA node."""
    pinning: NotRequired[Pinning]
    """How its CPUs are bound."""
    pins: NotRequired[list[int]]
    """Host CPUs that manual pinning names."""
    policy: NotRequired[str | None]
    """Policy instead of its cluster's."""
    ports: NotRequired[list[PortNeed]]
    """Its traffic."""
    properties: NotRequired[dict[str, str]]
    """Custom properties over its policy's."""
    same_host: NotRequired[list[str]]
    """VMs it must share a host with (Nova's hint `same_host`)."""
    sockets: NotRequired[int]
    """Virtual sockets."""
    status: NotRequired[VmStatus]
    """Its status."""
    threads: NotRequired[int]
    """Threads a core."""
    use_tsc: NotRequired[bool]
    """Whether its time stamp counter's frequency must never change."""
    version: NotRequired[str | None]
    """Its own compatibility version."""


class VmNic(TypedDict):
    """A network card of a VM."""

    network: NotRequired[str]
    """The network; empty for none."""
    passthrough: NotRequired[bool]
    """Whether it needs an SR-IOV virtual function."""


class VmNumaNode(TypedDict):
    """A NUMA node that a VM sees."""

    cpus: NotRequired[int]
    """Its CPUs."""
    host_nodes: NotRequired[list[int]]
    """Host nodes that it is pinned to; none for any."""
    memory_mb: NotRequired[int]
    """Its memory."""
    mode: NotRequired[NumaMode]
    """How strictly the memory is bound."""


class VmView(Vm):
    """A VM with its reservation."""

    reserved: NotRequired[str | None]
    """The host reserved for it, until it runs there or the reservation expires."""


class WeightTrace(TypedDict):
    """The score of a host by one weight."""

    factor: int
    """The weight's factor."""
    points: float
    """The selector's value before the factor: the rank, or the scaled score."""
    raw: int
    """The raw score; lower is better."""
    weight: str
    """The weight."""


class WeightUse(TypedDict):
    """A weight in a policy."""

    factor: int
    """Its factor."""
    name: str
    """Its name."""
    required: NotRequired[bool]
    """Whether a placement fails if this external unit fails."""


class WhyNot(TypedDict):
    """Why a host would or would not run a VM."""

    best: NotRequired[str | None]
    """The host that would be chosen."""
    best_score: NotRequired[float | None]
    """Its score."""
    better: int
    """Hosts that are better."""
    chosen: bool
    """Whether the host would be chosen."""
    errors: NotRequired[list[str]]
    """External units that failed and were left out."""
    host: str
    """The host."""
    refused: NotRequired[str]
    """The required external unit that failed, and its error: no host would be chosen then."""
    rejected: list[Verdict]
    """Filters that reject it."""
    score: NotRequired[float | None]
    """Its score."""
    vm: str
    """The VM."""
    weights: list[WeightTrace]
    """Its scores."""


class WhyNotRequest(TypedDict):
    """A VM and a host."""

    host: str
    """The host."""
    request: PlaceRequest
    """The VM."""


class WorkerProfileView(TypedDict):
    """Where a worker's time went, in nanoseconds."""

    functions: int
    """In functions."""
    idle: int
    """Polling without a frame."""
    name: str
    """Its name."""
    slept: int
    """Asleep."""
    stages: list[StageView]
    """The stages of bursts."""


class WorkerView(TypedDict):
    """A worker."""

    active: int
    """Number of queues that it polls now."""
    busy: int
    """Nanoseconds of turns in which frames moved."""
    name: str
    """Its name."""
    node: NotRequired[int | None]
    """The NUMA node that it and its ports' memory are on: the configured one, or on a host with several that
    of its core.
    """
    note: NotRequired[str]
    """A problem with it; empty if there is none."""
    queues: int
    """Number of queues that it serves."""
    sleeps: int
    """Times it went to sleep."""
    turns: int
    """Turns since its start."""


class Api:
    """The operations of the API, over a control socket. For one thread."""

    def __init__(self, socket: ControlSocket) -> None:
        self._socket = socket

    def healthz(self) -> str:
        """The health: errors, one per line, if any."""
        found: str = self._socket.text("GET", "/healthz", [])
        return found

    def metrics(self) -> str:
        """Metrics of the fabric in Prometheus' text format."""
        found: str = self._socket.text("GET", "/metrics", [])
        return found

    def arrive_function(self, body: Departure) -> None:
        """Lets a function of another fabric of this host go on here, with its state. This fabric needs ring
        ports of the same names that nobody has.
        """
        self._socket.call("POST", "/v1/arrivals", [], body=body)

    def audit(self, *, count: int | None = None) -> list[AuditView]:
        """Requests for changes, and what came of them; oldest first."""
        found: list[AuditView] = self._socket.json("GET", "/v1/audit", [], {"count": count})
        return found

    def chains(self) -> list[ChainView]:
        """Every chain of functions."""
        found: list[ChainView] = self._socket.json("GET", "/v1/chains", [])
        return found

    def fabric_events(
        self, *, after: int | None = None, count: int | None = None, follow: bool | None = None
    ) -> list[EventView]:
        """What has happened in the fabric, oldest first; as a stream, also what happens from now on."""
        found: list[EventView] = self._socket.json("GET", "/v1/events", [], {"after": after, "count": count, "follow": follow})
        return found

    def fabric(self) -> FabricView:
        """The fabric as a whole."""
        found: FabricView = self._socket.json("GET", "/v1/fabric", [])
        return found

    def put_fabric(self, body: NewFabric) -> Changes:
        """Changes the fabric to the state described by a file, one change at a time. An invalid file changes
        nothing.
        """
        found: Changes = self._socket.json("PUT", "/v1/fabric", [], body=body)
        return found

    def saved_fabric(self) -> SavedFabric:
        """The file that describes what runs: the last one, with what requests have changed since then."""
        found: SavedFabric = self._socket.json("GET", "/v1/fabric/file", [])
        return found

    def functions(self) -> list[FunctionView]:
        """Every function."""
        found: list[FunctionView] = self._socket.json("GET", "/v1/functions", [])
        return found

    def create_function(self, body: NewFunction) -> None:
        """Creates a function and starts it. It exists only if its configuration starts; a refused request
        changes nothing.
        """
        self._socket.call("POST", "/v1/functions", [], body=body)

    def destroy_function(self, name: str) -> None:
        """Stops a function and forgets it."""
        self._socket.call("DELETE", "/v1/functions/{}", [name])

    def update_function(self, name: str, body: NewConfiguration) -> None:
        """Replaces the configuration of a running function; elements of the same name and class keep their
        state. A refused configuration changes nothing.
        """
        self._socket.call("PUT", "/v1/functions/{}/configuration", [name], body=body)

    def depart_function(self, name: str) -> Departure:
        """Stops a function in a VM between two frames, so that it can go on in another fabric of this host, to
        which the answer is posted as an arrival. It is suspended: resuming it lets it go on here after all,
        removing it ends it.
        """
        found: Departure = self._socket.json("POST", "/v1/functions/{}/depart", [name])
        return found

    def function_graph(self, name: str, *, seconds: float | None = None) -> GraphView:
        """Counts a running function's packets for a while. Returns its graph."""
        found: GraphView = self._socket.json("GET", "/v1/functions/{}/graph", [name], {"seconds": seconds})
        return found

    def function_svg(self, name: str, *, seconds: float | None = None) -> str:
        """The function's graph as an SVG drawing."""
        found: str = self._socket.text("GET", "/v1/functions/{}/graph.svg", [name], {"seconds": seconds})
        return found

    def read_handler(self, name: str, handler: str) -> HandlerValue:
        """Reads a handler of a function."""
        found: HandlerValue = self._socket.json("GET", "/v1/functions/{}/handlers/{}", [name, handler])
        return found

    def write_handler(self, name: str, handler: str, body: HandlerValue) -> None:
        """Writes a handler of a function."""
        self._socket.call("PUT", "/v1/functions/{}/handlers/{}", [name, handler], body=body)

    def resume_function(self, name: str) -> None:
        """Lets a suspended function go on."""
        self._socket.call("POST", "/v1/functions/{}/resume", [name])

    def snapshot_function(self, name: str, body: NewSnapshot) -> None:
        """Takes a snapshot of a function in a VM, which runs on. It is kept in memory until it is removed, or
        the fabric goes down.
        """
        self._socket.call("POST", "/v1/functions/{}/snapshot", [name], body=body)

    def start_function(self, name: str) -> None:
        """Starts a function. Its configuration runs after the answer."""
        self._socket.call("POST", "/v1/functions/{}/start", [name])

    def stop_function(self, name: str) -> None:
        """Stops a function. Its process ends after the answer."""
        self._socket.call("POST", "/v1/functions/{}/stop", [name])

    def suspend_function(self, name: str) -> None:
        """Suspends a function: its process keeps its state, and its ports drop frames once their rings are
        full.
        """
        self._socket.call("POST", "/v1/functions/{}/suspend", [name])

    def fabric_graph(self, *, seconds: float | None = None) -> FabricGraphView:
        """The whole fabric as a graph, with what passes during a sample."""
        found: FabricGraphView = self._socket.json("GET", "/v1/graph", [], {"seconds": seconds})
        return found

    def fabric_svg(self, *, seconds: float | None = None) -> str:
        """The fabric's graph as an SVG drawing."""
        found: str = self._socket.text("GET", "/v1/graph.svg", [], {"seconds": seconds})
        return found

    def prepare_guest(self, body: GuestArrival) -> ArrivalView:
        """Checks a guest that is to arrive from another fabric, and starts a QEMU that waits for it. The ports
        of the guest send nothing until it is activated. A refused guest changes nothing.
        """
        found: ArrivalView = self._socket.json("POST", "/v1/guest-arrivals", [], body=body)
        return found

    def arriving_guest(self, name: str, ticket: str) -> ArrivalView:
        """State of a guest that arrives, or has arrived."""
        found: ArrivalView = self._socket.json("GET", "/v1/guest-arrivals/{}/{}", [name, ticket])
        return found

    def abandon_guest(self, name: str, ticket: str) -> None:
        """Gives up a guest that arrives. The answer comes once its QEMU has ended."""
        self._socket.call("DELETE", "/v1/guest-arrivals/{}/{}", [name, ticket])

    def activate_guest(self, name: str, ticket: str, body: Activation) -> None:
        """Lets a guest that has arrived go on here. The answer comes once it runs. Its former place must have
        stopped it, and must not let it go on unless it is told that it will not run here.
        """
        self._socket.call("POST", "/v1/guest-arrivals/{}/{}/activate", [name, ticket], body=body)

    def guests(self) -> list[GuestView]:
        """Every guest."""
        found: list[GuestView] = self._socket.json("GET", "/v1/guests", [])
        return found

    def exec(self, name: str, body: Exec) -> ExecView:
        """Runs a shell command in a guest. The answer comes when the command has ended."""
        found: ExecView = self._socket.json("POST", "/v1/guests/{}/exec", [name], body=body)
        return found

    def migrate_guest(self, name: str, body: NewMigration) -> MigrationView:
        """Moves a running QEMU guest to another fabric, whose file describes the same guest. The answer comes
        once that fabric has checked and prepared it; a refused migration changes nothing.
        """
        found: MigrationView = self._socket.json("POST", "/v1/guests/{}/migrate", [name], body=body)
        return found

    def guest_migration(self, name: str) -> MigrationView:
        """How far the last migration of a guest from here is."""
        found: MigrationView = self._socket.json("GET", "/v1/guests/{}/migration", [name])
        return found

    def cancel_guest_migration(self, name: str) -> None:
        """Asks to end a migration: the guest runs on here. It is ended when the stage says so; it may be too
        late. A guest that arrives here, and was not activated, is given up.
        """
        self._socket.call("DELETE", "/v1/guests/{}/migration", [name])

    def resolve_guest_migration(self, name: str, body: MigrationDecision) -> MigrationView:
        """Decides where a guest runs of which the other fabric does not say whether it runs there (stage
        `asking`), because it is lost for good. It is asked once more, and if it answers, that counts.
        Otherwise the guest goes on here, or is ended here: a guest that runs there too runs twice, and one
        that does not run there is lost.
        """
        found: MigrationView = self._socket.json("POST", "/v1/guests/{}/migration/resolve", [name], body=body)
        return found

    def start_guest(self, name: str) -> None:
        """Starts a guest. It boots after the answer."""
        self._socket.call("POST", "/v1/guests/{}/start", [name])

    def stop_guest(self, name: str) -> None:
        """Stops a guest. It powers off after the answer."""
        self._socket.call("POST", "/v1/guests/{}/stop", [name])

    def fabric_hosts(self) -> list[HostView]:
        """Every host, with its interfaces and programs."""
        found: list[HostView] = self._socket.json("GET", "/v1/hosts", [])
        return found

    def links(self) -> list[LinkView]:
        """Every emulated link, with its settings and counters."""
        found: list[LinkView] = self._socket.json("GET", "/v1/links", [])
        return found

    def set_link(self, name: str, body: LinkChange) -> LinkView:
        """Changes settings of an emulated link while it runs. Frames under way arrive as before. A wrong value
        changes nothing.
        """
        found: LinkView = self._socket.json("PATCH", "/v1/links/{}", [name], body=body)
        return found

    def page(self) -> PageView:
        """Where the page for browsers is."""
        found: PageView = self._socket.json("GET", "/v1/page", [])
        return found

    def decide(self, body: PlaceRequest) -> DecisionView:
        """Decides where VMs run, and reserves their resources."""
        found: DecisionView = self._socket.json("POST", "/v1/place", [], body=body)
        return found

    def rounds(self) -> list[BalanceStep]:
        """The last rounds of balancing in which something happened, newest first."""
        found: list[BalanceStep] = self._socket.json("GET", "/v1/place/balance", [])
        return found

    def balance(self, body: BalanceRequest) -> list[BalanceStep]:
        """A round of balancing, carried out, or a preview of several."""
        found: list[BalanceStep] = self._socket.json("POST", "/v1/place/balance", [], body=body)
        return found

    def decisions(self, *, count: int | None = None) -> list[DecisionView]:
        """The newest decisions, newest first."""
        found: list[DecisionView] = self._socket.json("GET", "/v1/place/decisions", [], {"count": count})
        return found

    def explain(self, id: int) -> ExplainView:
        """A decision's details, repeated at its revision."""
        found: ExplainView = self._socket.json("GET", "/v1/place/decisions/{}", [id])
        return found

    def events(
        self, *, after: int | None = None, count: int | None = None, measurements: bool | None = None
    ) -> EventsView:
        """Events: objects added, changed or deleted, reservations, decisions; oldest first. To follow, repeat
        the request with the answer's revision.
        """
        found: EventsView = self._socket.json("GET", "/v1/place/events", [], {"after": after, "count": count, "measurements": measurements})
        return found

    def best(self, body: ExtenderArgs) -> ExtenderFilterResult:
        """A filter that leaves only the node with the highest priority, so that kube-scheduler rates none: one
        request a pod, in place of `filter` and `prioritize`.
        """
        found: ExtenderFilterResult = self._socket.json("POST", "/v1/place/extender/best", [], body=body)
        return found

    def bind(self, body: ExtenderBindingArgs) -> BindingResult:
        """Binds a pod to a node, here and in Kubernetes, with the requests from the last `filter` or
        `prioritize`, or those of the VM `NAMESPACE.NAME`. Refused if Kubernetes is not watched.
        """
        found: BindingResult = self._socket.json("POST", "/v1/place/extender/bind", [], body=body)
        return found

    def filter(self, body: ExtenderArgs) -> ExtenderFilterResult:
        """Filters nodes for kube-scheduler."""
        found: ExtenderFilterResult = self._socket.json("POST", "/v1/place/extender/filter", [], body=body)
        return found

    def prioritize(self, body: ExtenderArgs) -> list[HostPriority]:
        """Rates nodes for kube-scheduler."""
        found: list[HostPriority] = self._socket.json("POST", "/v1/place/extender/prioritize", [], body=body)
        return found

    def facts(self, body: list[FactPush]) -> RevisionView:
        """Sets facts about hosts. The next decision uses them."""
        found: RevisionView = self._socket.json("POST", "/v1/place/facts", [], body=body)
        return found

    def remove_fact(self, host: str, name: str) -> None:
        """Deletes a fact about a host."""
        self._socket.call("DELETE", "/v1/place/facts/{}/{}", [host, name])

    def place_guest(self, name: str) -> DecisionView:
        """Places a guest or a function of the fabric file on this host, and starts it."""
        found: DecisionView = self._socket.json("POST", "/v1/place/guests/{}/start", [name])
        return found

    def hosts(self) -> list[HostRow]:
        """Every host, with its remaining resources."""
        found: list[HostRow] = self._socket.json("GET", "/v1/place/hosts", [])
        return found

    def activate(self, name: str) -> StatusView:
        """Ends a host's maintenance."""
        found: StatusView = self._socket.json("POST", "/v1/place/hosts/{}/activate", [name])
        return found

    def drain(self, name: str, body: DrainRequest) -> DrainView:
        """Puts a host into maintenance and moves its VMs away, some at a time. Repeat the request to follow
        it.
        """
        found: DrainView = self._socket.json("POST", "/v1/place/hosts/{}/drain", [name], body=body)
        return found

    def maintain(self, name: str) -> StatusView:
        """Puts a host into maintenance: it gets no new VMs, balancing rounds migrate its VMs, and it is in
        maintenance when it is empty.
        """
        found: StatusView = self._socket.json("POST", "/v1/place/hosts/{}/maintenance", [name])
        return found

    def list_objects(self, *, kind: str | None = None) -> list[dict[str, Any]]:
        """The objects that were added, as they are now."""
        found: list[dict[str, Any]] = self._socket.json("GET", "/v1/place/objects", [], {"kind": kind})
        return found

    def objects(self, body: list[dict[str, Any]]) -> RevisionView:
        """Adds or replaces objects, all or none: clusters, policies, hosts, loads, facts, blacklist entries,
        VMs, groups.
        """
        found: RevisionView = self._socket.json("POST", "/v1/place/objects", [], body=body)
        return found

    def remove(self, kind: str, name: str) -> None:
        """Deletes an unused object. Deleting a host deletes its measurements."""
        self._socket.call("DELETE", "/v1/place/objects/{}/{}", [kind, name])

    def attached(self) -> PluginsView:
        """The sources of external units, with their errors."""
        found: PluginsView = self._socket.json("GET", "/v1/place/plugins", [])
        return found

    def plugins(self, body: Any) -> list[UnitView]:
        """Attaches external units in addition to those of the fabric file, replacing those attached before:
        folders of Python plugins, services in any language. They stay attached when the fabric is
        restarted.
        """
        found: list[UnitView] = self._socket.json("PUT", "/v1/place/plugins", [], body=body)
        return found

    def policies(self) -> list[Policy]:
        """Every policy."""
        found: list[Policy] = self._socket.json("GET", "/v1/place/policies", [])
        return found

    def policy(self, name: str) -> Policy:
        """A policy."""
        found: Policy = self._socket.json("GET", "/v1/place/policies/{}", [name])
        return found

    def store(self) -> StoreView:
        """The store: its path, its contents, whether the disk is full."""
        found: StoreView = self._socket.json("GET", "/v1/place/store", [])
        return found

    def backup(self, body: BackupRequest) -> StoreView:
        """Writes a backup of the store to a file of the fabric's host, replacing it."""
        found: StoreView = self._socket.json("POST", "/v1/place/store/backup", [], body=body)
        return found

    def join(self, body: JoinRequest) -> JoinView:
        """Adds the fabric's own host to a cluster, so that VMs are placed on it too."""
        found: JoinView = self._socket.json("POST", "/v1/place/this-host", [], body=body)
        return found

    def attempt(self, body: PlaceRequest) -> ExplainView:
        """Decides where VMs would run, with a full trace, without a reservation."""
        found: ExplainView = self._socket.json("POST", "/v1/place/try", [], body=body)
        return found

    def units(self) -> list[UnitView]:
        """Every unit that policies choose from."""
        found: list[UnitView] = self._socket.json("GET", "/v1/place/units", [])
        return found

    def vms(self) -> list[VmView]:
        """Every VM, with its reservation."""
        found: list[VmView] = self._socket.json("GET", "/v1/place/vms", [])
        return found

    def confirm(self, name: str) -> None:
        """Confirms that a VM runs where it was placed."""
        self._socket.call("POST", "/v1/place/vms/{}/confirm", [name])

    def release(self, name: str) -> None:
        """Releases a VM's reservation."""
        self._socket.call("POST", "/v1/place/vms/{}/release", [name])

    def why_not(self, body: WhyNotRequest) -> WhyNot:
        """Why a host would or would not run VMs."""
        found: WhyNot = self._socket.json("POST", "/v1/place/why-not", [], body=body)
        return found

    def ports(self) -> list[PortView]:
        """Every port, in the order of the file."""
        found: list[PortView] = self._socket.json("GET", "/v1/ports", [])
        return found

    def add_port(self, body: NewPort) -> None:
        """Adds a port. A wrong request changes nothing."""
        self._socket.call("POST", "/v1/ports", [], body=body)

    def remove_port(self, name: str) -> None:
        """Removes a port, and sends its peer away."""
        self._socket.call("DELETE", "/v1/ports/{}", [name])

    def set_port(self, name: str, body: PortChange) -> PortView:
        """Changes what a switch lets a port send and receive, while frames pass. A wrong request changes
        nothing.
        """
        found: PortView = self._socket.json("PATCH", "/v1/ports/{}", [name], body=body)
        return found

    def carrier_off(self, name: str) -> None:
        """Turns a port's carrier off: its driver sees a disconnected cable, and no frames pass."""
        self._socket.call("POST", "/v1/ports/{}/down", [name])

    def exits(self, name: str) -> ExitsView:
        """Accesses to the registers of a port's card, and its interrupts, since its client connected."""
        found: ExitsView = self._socket.json("GET", "/v1/ports/{}/exits", [name])
        return found

    def trace_frame(self, name: str, body: NewTrace) -> TraceView:
        """Says what would become of a frame that the peer of a port sent, with no effect; or sends it too.
        """
        found: TraceView = self._socket.json("POST", "/v1/ports/{}/trace", [name], body=body)
        return found

    def carrier_on(self, name: str) -> None:
        """Turns a port's carrier on, as the file may say it by `carrier`."""
        self._socket.call("POST", "/v1/ports/{}/up", [name])

    def profile(self, *, seconds: float | None = None, elements: bool | None = None) -> ProfileView:
        """Measures for a while where the time of workers and functions goes."""
        found: ProfileView = self._socket.json("GET", "/v1/profile", [], {"seconds": seconds, "elements": elements})
        return found

    def programs(self) -> list[ProgramView]:
        """Every program."""
        found: list[ProgramView] = self._socket.json("GET", "/v1/programs", [])
        return found

    def restart_program(self, name: str) -> None:
        """Asks to end, and starts again, a program."""
        self._socket.call("POST", "/v1/programs/{}/restart", [name])

    def start_program(self, name: str) -> None:
        """Starts a program."""
        self._socket.call("POST", "/v1/programs/{}/start", [name])

    def stop_program(self, name: str) -> None:
        """Asks to end a program."""
        self._socket.call("POST", "/v1/programs/{}/stop", [name])

    def rates(self) -> str:
        """Rates of ports and links each second, as a stream of server-sent events named `rates`. A client that
        reads slowly misses some.
        """
        found: str = self._socket.text("GET", "/v1/rates", [])
        return found

    def shutdown(self) -> None:
        """Takes the fabric down. The answer comes when that is done."""
        self._socket.call("POST", "/v1/shutdown", [])

    def snapshots(self) -> list[SnapshotView]:
        """Every snapshot."""
        found: list[SnapshotView] = self._socket.json("GET", "/v1/snapshots", [])
        return found

    def forget_snapshot(self, name: str) -> None:
        """Removes a snapshot. Its clones run on."""
        self._socket.call("DELETE", "/v1/snapshots/{}", [name])

    def clone_snapshot(self, name: str, body: NewClone) -> None:
        """Creates a function that goes on from a snapshot, and shares its memory until it writes it. Its
        restarts go on from there too.
        """
        self._socket.call("POST", "/v1/snapshots/{}/clone", [name], body=body)

    def stats(self) -> StatsView:
        """Counters of every port. Reading them costs the data path nothing."""
        found: StatsView = self._socket.json("GET", "/v1/stats", [])
        return found

    def switches(self) -> list[SwitchView]:
        """Every switch."""
        found: list[SwitchView] = self._socket.json("GET", "/v1/switches", [])
        return found

    def add_switch(self, body: NewSwitch) -> None:
        """Adds a switch. A wrong request changes nothing."""
        self._socket.call("POST", "/v1/switches", [], body=body)

    def remove_switch(self, name: str) -> None:
        """Removes a switch that has no ports."""
        self._socket.call("DELETE", "/v1/switches/{}", [name])

    def flows(self, name: str, *, filter: str | None = None) -> FlowsView:
        """The flow tables of a switch, with what is counted."""
        found: FlowsView = self._socket.json("GET", "/v1/switches/{}/flows", [name], {"filter": filter})
        return found

    def replace_flows(self, name: str, body: FlowsChange) -> FlowsChanged:
        """Makes the rules of the request those of a switch, at once. What stays keeps what was counted."""
        found: FlowsChanged = self._socket.json("PUT", "/v1/switches/{}/flows", [name], body=body)
        return found

    def change_flows(self, name: str, body: FlowsChange) -> FlowsChanged:
        """Changes flows, groups and meters of a switch while frames pass: all changes at once, or none."""
        found: FlowsChanged = self._socket.json("POST", "/v1/switches/{}/flows", [name], body=body)
        return found

    def groups(self, name: str) -> GroupsView:
        """The members of groups that a switch knows, if it snoops."""
        found: GroupsView = self._socket.json("GET", "/v1/switches/{}/groups", [name])
        return found

    def table(self, name: str) -> TableView:
        """The addresses that a switch knows."""
        found: TableView = self._socket.json("GET", "/v1/switches/{}/table", [name])
        return found

    def tokens(self) -> list[TokenView]:
        """The clients of the API at its TCP address, without their tokens, which are not stored."""
        found: list[TokenView] = self._socket.json("GET", "/v1/tokens", [])
        return found

    def add_token(self, body: NewToken) -> CreatedToken:
        """Adds a client. Its token is in the answer, and nowhere else."""
        found: CreatedToken = self._socket.json("POST", "/v1/tokens", [], body=body)
        return found

    def remove_token(self, name: str) -> None:
        """Removes a client; its next request is refused."""
        self._socket.call("DELETE", "/v1/tokens/{}", [name])

    def usage(self) -> UsageView:
        """Processor time and memory of every guest, function and process of the fabric."""
        found: UsageView = self._socket.json("GET", "/v1/usage", [])
        return found
