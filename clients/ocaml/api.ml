(* Written by scripts/clients.py from the OpenAPI document (`ringway openapi`). *)

(** What an action does. *)
module ActionKind = struct
  type t =
    | Stop
    | Deactivate
    | Activate
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "stop" -> Stop
    | "deactivate" -> Deactivate
    | "activate" -> Activate
    | other -> Other other
end

(** Outcome of a migration. *)
module MigrationState = struct
  type t =
    | Proposed
    | Reserved
    | Done
    | Refused
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "proposed" -> Proposed
    | "reserved" -> Reserved
    | "done" -> Done
    | "refused" -> Refused
    | other -> Other other

  let to_json = function
    | Proposed -> `String "proposed"
    | Reserved -> `String "reserved"
    | Done -> `String "done"
    | Refused -> `String "refused"
    | Other other -> `String other
end

(** An action of a balancer. *)
module Action = struct
  type t = {
    kind : ActionKind.t;
        (** What it does. *)
    name : string;
        (** The VM or the host. *)
    reason : string;
        (** Why. *)
    refused : string option;
        (** The reason of a refusal; otherwise empty. *)
    state : MigrationState.t option;
        (** Its outcome: `reserved` is a VM that another program is to stop. *)
  }

  let of_json json =
    {
      kind = Codec.field ActionKind.of_json "kind" json;
      name = Codec.field Codec.string "name" json;
      reason = Codec.field Codec.string "reason" json;
      refused = Codec.optional Codec.string "refused" json;
      state = Codec.optional MigrationState.of_json "state" json;
    }
end

(** A guest is to go on where it has arrived. *)
module Activation = struct
  type t = {
    delivered : int list option;
        (** Fingerprints of the frames that it got there, which are not delivered again, in their order. *)
    known : int option;
        (** All frames that it got in so many nanoseconds before it stopped are in `delivered`; without it, none
            of them is known. *)
    stopped : int option;
        (** When it stopped, in nanoseconds of the host's CLOCK_MONOTONIC, if that is known and both fabrics are
            on one host. *)
    stopped_ago : int option;
        (** Nanoseconds between the stop and this request, if that is known and the fabrics are on two hosts.
            The time that the request takes makes the stop later, so that no frame comes twice. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "delivered" (Codec.of_list Codec.of_int) it.delivered;
        Codec.given "known" Codec.of_int it.known;
        Codec.given "stopped" Codec.of_int it.stopped;
        Codec.given "stopped_ago" Codec.of_int it.stopped_ago;
      ]

  let make ?delivered ?known ?stopped ?stopped_ago () =
    { delivered; known; stopped; stopped_ago }
end

(** State of a guest that arrives. *)
module ArrivalView = struct
  type t = {
    guest : string;
        (** The guest. *)
    reason : string;
        (** Why it failed. *)
    state : string;
        (** `receiving`, `loaded`, `activating`, `active` or `failed`. *)
    stream : string;
        (** The socket for its memory. *)
    ticket : string;
        (** The attempt. *)
  }

  let of_json json =
    {
      guest = Codec.field Codec.string "guest" json;
      reason = Codec.field Codec.string "reason" json;
      state = Codec.field Codec.string "state" json;
      stream = Codec.field Codec.string "stream" json;
      ticket = Codec.field Codec.string "ticket" json;
    }
end

(** A request for a change, and what came of it. *)
module AuditView = struct
  type t = {
    address : string option;
        (** Address of a client that is not on this host. *)
    body : string;
        (** Beginning of the body, at most 1 KiB. *)
    error : string;
        (** Why it was not done, at most 1 KiB. *)
    lost : int;
        (** Number of requests since the entry before this one that could not be logged. *)
    process : int option;
        (** Process ID of the client. *)
    program : string option;
        (** Name of the client's program. *)
    request : string;
        (** Method and path. *)
    status : int;
        (** Status of the answer: from 200 to 299 if it was done. *)
    time : int;
        (** When it came, in nanoseconds since 1970. *)
    token : string option;
        (** Name of its token, if it is connected by TCP. *)
    user : int option;
        (** User ID of the client. *)
  }

  let of_json json =
    {
      address = Codec.optional Codec.string "address" json;
      body = Codec.field Codec.string "body" json;
      error = Codec.field Codec.string "error" json;
      lost = Codec.field Codec.int "lost" json;
      process = Codec.optional Codec.int "process" json;
      program = Codec.optional Codec.string "program" json;
      request = Codec.field Codec.string "request" json;
      status = Codec.field Codec.int "status" json;
      time = Codec.field Codec.int "time" json;
      token = Codec.optional Codec.string "token" json;
      user = Codec.optional Codec.int "user" json;
    }
end

(** The path of a backup. *)
module BackupRequest = struct
  type t = {
    path : string;
        (** An absolute path. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "path" Codec.of_string it.path;
      ]

  let make ~path () =
    { path }
end

(** A round of balancing, or a preview of several. *)
module BalanceRequest = struct
  type t = {
    cluster : string option;
        (** The cluster. *)
    dry_run : bool option;
        (** Whether it is only a preview. *)
    interval : int option;
        (** Milliseconds between two rounds of a preview. *)
    rounds : int option;
        (** Rounds of a preview. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "cluster" Codec.of_string it.cluster;
        Codec.given "dry_run" Codec.of_bool it.dry_run;
        Codec.given "interval" Codec.of_int it.interval;
        Codec.given "rounds" Codec.of_int it.rounds;
      ]

  let make ?cluster ?dry_run ?interval ?rounds () =
    { cluster; dry_run; interval; rounds }
end

(** A migration. *)
module Migration = struct
  type t = {
    decision : int;
        (** The decision that chose the destination; 0 in a preview. *)
    from : string;
        (** Its source host. *)
    reason : string;
        (** Why. *)
    refused : string option;
        (** The reason of a refusal; otherwise empty. *)
    state : MigrationState.t option;
        (** Its outcome. *)
    to_ : string;
        (** Its destination host. *)
    vm : string;
        (** The VM. *)
  }

  let of_json json =
    {
      decision = Codec.field Codec.int "decision" json;
      from = Codec.field Codec.string "from" json;
      reason = Codec.field Codec.string "reason" json;
      refused = Codec.optional Codec.string "refused" json;
      state = Codec.optional MigrationState.of_json "state" json;
      to_ = Codec.field Codec.string "to" json;
      vm = Codec.field Codec.string "vm" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.some "decision" Codec.of_int it.decision;
        Codec.some "from" Codec.of_string it.from;
        Codec.some "reason" Codec.of_string it.reason;
        Codec.given "refused" Codec.of_string it.refused;
        Codec.given "state" MigrationState.to_json it.state;
        Codec.some "to" Codec.of_string it.to_;
        Codec.some "vm" Codec.of_string it.vm;
      ]

  let make ~decision ~from ~reason ?refused ?state ~to_ ~vm () =
    { decision; from; reason; refused; state; to_; vm }
end

(** Result of a balancing round in a cluster, or its preview. *)
module BalanceStep = struct
  type t = {
    actions : Action.t list option;
        (** Other actions of an external balancer. *)
    at : int;
        (** Time in milliseconds since 1970. *)
    cluster : string;
        (** The cluster. *)
    errors : string list;
        (** External units that failed: the balancer, or one that the policy requires. *)
    migrations : Migration.t list;
        (** Migrations. *)
    power : (string * string) option;
        (** A host to switch, and its new status. *)
    power_reason : string option;
        (** The reason; empty without a host to switch. *)
    unsafe_hosts : string list;
        (** Hosts whose failure would leave highly available VMs without a host. *)
  }

  let of_json json =
    {
      actions = Codec.optional (Codec.list Action.of_json) "actions" json;
      at = Codec.field Codec.int "at" json;
      cluster = Codec.field Codec.string "cluster" json;
      errors = Codec.field (Codec.list Codec.string) "errors" json;
      migrations = Codec.field (Codec.list Migration.of_json) "migrations" json;
      power = Codec.optional (function `List [ x0; x1 ] -> (Codec.string x0, Codec.string x1) | json -> Codec.wrong "2 values" json) "power" json;
      power_reason = Codec.optional Codec.string "power_reason" json;
      unsafe_hosts = Codec.field (Codec.list Codec.string) "unsafe_hosts" json;
    }
end

(** Whether a pod was bound. *)
module BindingResult = struct
  type t = {
    error : string;
        (** The error; empty if none. *)
  }

  let of_json json =
    {
      error = Codec.field Codec.string "Error" json;
    }
end

(** A chain of functions between two ports. *)
module ChainView = struct
  type t = {
    functions : string list;
        (** Its functions, in the order in which frames from its first port pass them. *)
    name : string;
        (** Its name. *)
    ports : string list;
        (** The ports at its ends. *)
    reason : string;
        (** Which function does not run, and why. *)
    state : string;
        (** `up` if all of its functions run, else `down`. *)
  }

  let of_json json =
    {
      functions = Codec.field (Codec.list Codec.string) "functions" json;
      name = Codec.field Codec.string "name" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
      reason = Codec.field Codec.string "reason" json;
      state = Codec.field Codec.string "state" json;
    }
end

module U64 = struct
  type t = int

  let of_json = Codec.int
  let to_json = Codec.of_int
end

(** A change of an object. *)
module Changed = struct
  type t = {
    at : int option;
        (** The time in milliseconds since 1970, to about a second; none if it was before the fabric came up. *)
    gone : bool;
        (** Whether it was deleted. *)
    kind : string;
        (** The kind of object: `host`, `vm`, `group`, `policy`, `cluster`, `load`, `fact`, `blacklist`,
            `pending` (a reservation) or `decision`. *)
    name : string;
        (** Its name; of a fact its host's and its own, of a decision its number. *)
    revision : U64.t;
        (** The store's revision of the change. *)
    what : string;
        (** Its new value, in words. *)
  }

  let of_json json =
    {
      at = Codec.optional Codec.int "at" json;
      gone = Codec.field Codec.bool "gone" json;
      kind = Codec.field Codec.string "kind" json;
      name = Codec.field Codec.string "name" json;
      revision = Codec.field U64.of_json "revision" json;
      what = Codec.field Codec.string "what" json;
    }
end

(** The changes made, in order. *)
module Changes = struct
  type t = {
    changes : string list;
        (** Descriptions such as `add port a (ring)`. *)
  }

  let of_json json =
    {
      changes = Codec.field (Codec.list Codec.string) "changes" json;
    }
end

(** A filter and the number of hosts that it removed. *)
module Removed = struct
  type t = {
    filter : string;
        (** The filter. *)
    hosts : int;
        (** Number of remaining hosts that it removed. *)
  }

  let of_json json =
    {
      filter = Codec.field Codec.string "filter" json;
      hosts = Codec.field Codec.int "hosts" json;
    }
end

(** A host and its score. *)
module Scored = struct
  type t = {
    host : string;
        (** The host. *)
    score : float;
        (** Its score; the highest wins. *)
  }

  let of_json json =
    {
      host = Codec.field Codec.string "host" json;
      score = Codec.field Codec.float "score" json;
    }
end

(** The choice for VMs that are placed together. *)
module Choice = struct
  type t = {
    errors : string list;
        (** External units that failed and were left out. *)
    host : string option;
        (** The host; none if no host fits. *)
    hosts : int;
        (** Total number of hosts. *)
    may_wait : bool;
        (** Whether memory was insufficient only because of pending VMs, so that waiting may help. *)
    passed : int;
        (** Hosts that passed every filter. *)
    policy : string;
        (** Their policy. *)
    refused : string option;
        (** The required external unit that failed, and its error: no host is chosen then. *)
    removed : Removed.t list;
        (** Filters that removed hosts. *)
    top : Scored.t list;
        (** The best hosts, best first, twenty at most. *)
    vms : string list;
        (** The VMs. *)
    weighed : bool;
        (** Whether hosts were weighed: not if only one was left, or if weighing was skipped for speed. *)
  }

  let of_json json =
    {
      errors = Codec.field (Codec.list Codec.string) "errors" json;
      host = Codec.optional Codec.string "host" json;
      hosts = Codec.field Codec.int "hosts" json;
      may_wait = Codec.field Codec.bool "may_wait" json;
      passed = Codec.field Codec.int "passed" json;
      policy = Codec.field Codec.string "policy" json;
      refused = Codec.optional Codec.string "refused" json;
      removed = Codec.field (Codec.list Removed.of_json) "removed" json;
      top = Codec.field (Codec.list Scored.of_json) "top" json;
      vms = Codec.field (Codec.list Codec.string) "vms" json;
      weighed = Codec.field Codec.bool "weighed" json;
    }
end

(** Offloads that are completed in software. *)
module CompletionView = struct
  type t = {
    first : string;
        (** The first one, in hexadecimal. *)
    frames : int;
        (** Number of frames that result. *)
    length : int;
        (** Its length in bytes. *)
  }

  let of_json json =
    {
      first = Codec.field Codec.string "first" json;
      frames = Codec.field Codec.int "frames" json;
      length = Codec.field Codec.int "length" json;
    }
end

(** Counters of a queue. TX is what the peer sends, RX what it receives. *)
module Counts = struct
  type t = {
    answered : int option;
        (** Frames of the peer that were too long for their destination, and whose senders were told so. *)
    bursts : int;
        (** Bursts taken. *)
    faults : int;
        (** Protocol violations by the peer. *)
    interrupts : int;
        (** Notifications to the peer. *)
    iotlb_faults : int option;
        (** Accesses that the guest's IOMMU refused. *)
    iotlb_hits : int option;
        (** Addresses whose translation was known. *)
    iotlb_invalidations : int option;
        (** Invalidations of translations. *)
    iotlb_misses : int option;
        (** Addresses whose translation had to be requested. *)
    joined : int option;
        (** Frames for the port that became part of the frame before them: they are not in `rx_frames`. *)
    kicks : int;
        (** Notifications from the peer. *)
    memory_grown : int option;
        (** Bytes by which such files grew while the port used them. *)
    memory_resident : int option;
        (** Bytes in memory of the files that the front-end shares, within the shared ranges; a current value,
            not a total. *)
    moved : int option;
        (** Addresses that the peer sent from while the switch knew them at another port. *)
    rx_bytes : int;
        (** Their bytes. *)
    rx_drops : (string * int) list;
        (** Dropped frames for this queue, by reason. *)
    rx_frames : int;
        (** Frames that left the fabric here. *)
    session_pauses : int option;
        (** Pauses of the peer's session: it was woken too often without a message. *)
    tx_bytes : int;
        (** Their bytes. *)
    tx_drops : (string * int) list;
        (** Dropped frames that entered here, by reason; reasons without drops are omitted. *)
    tx_frames : int;
        (** Frames that entered the fabric here. *)
    unlearned : int option;
        (** Frames whose source address was not learned, since the port has learned too many. *)
  }

  let of_json json =
    {
      answered = Codec.optional Codec.int "answered" json;
      bursts = Codec.field Codec.int "bursts" json;
      faults = Codec.field Codec.int "faults" json;
      interrupts = Codec.field Codec.int "interrupts" json;
      iotlb_faults = Codec.optional Codec.int "iotlb_faults" json;
      iotlb_hits = Codec.optional Codec.int "iotlb_hits" json;
      iotlb_invalidations = Codec.optional Codec.int "iotlb_invalidations" json;
      iotlb_misses = Codec.optional Codec.int "iotlb_misses" json;
      joined = Codec.optional Codec.int "joined" json;
      kicks = Codec.field Codec.int "kicks" json;
      memory_grown = Codec.optional Codec.int "memory_grown" json;
      memory_resident = Codec.optional Codec.int "memory_resident" json;
      moved = Codec.optional Codec.int "moved" json;
      rx_bytes = Codec.field Codec.int "rx_bytes" json;
      rx_drops = Codec.field (Codec.assoc Codec.int) "rx_drops" json;
      rx_frames = Codec.field Codec.int "rx_frames" json;
      session_pauses = Codec.optional Codec.int "session_pauses" json;
      tx_bytes = Codec.field Codec.int "tx_bytes" json;
      tx_drops = Codec.field (Codec.assoc Codec.int) "tx_drops" json;
      tx_frames = Codec.field Codec.int "tx_frames" json;
      unlearned = Codec.optional Codec.int "unlearned" json;
    }
end

(** A client that was added. *)
module CreatedToken = struct
  type t = {
    name : string;
        (** Its name. *)
    token : string option;
        (** Its token, if it has no certificate. It is not stored, and not shown again. *)
  }

  let of_json json =
    {
      name = Codec.field Codec.string "name" json;
      token = Codec.optional Codec.string "token" json;
    }
end

(** A decision. *)
module DecisionView = struct
  type t = {
    at : int;
        (** Time of the decision. *)
    choices : Choice.t list;
        (** The choice for each group of VMs placed together. *)
    id : int;
        (** Its number; 0 if nothing was decided. *)
    placed : bool;
        (** Whether every VM has a host. *)
    revision : int;
        (** The store's revision at the decision. *)
    seed : int;
        (** The seed that broke ties. *)
  }

  let of_json json =
    {
      at = Codec.field Codec.int "at" json;
      choices = Codec.field (Codec.list Choice.of_json) "choices" json;
      id = Codec.field Codec.int "id" json;
      placed = Codec.field Codec.bool "placed" json;
      revision = Codec.field Codec.int "revision" json;
      seed = Codec.field Codec.int "seed" json;
    }
end

(** A function in a VM that stands still, to go on in another fabric of this host. *)
module Departure = struct
  type t = {
    descriptor : int;
        (** The number of that process's descriptor of the memory. *)
    function_ : string;
        (** Its description, as JSON of this version of the program. *)
    inode : int;
        (** The memory's inode, since the number may be another file's by the time it is opened. *)
    name : string;
        (** Its name. *)
    process : int;
        (** The process that has its memory. *)
    state : string;
        (** The state of its CPU, as JSON. *)
  }

  let of_json json =
    {
      descriptor = Codec.field Codec.int "descriptor" json;
      function_ = Codec.field Codec.string "function" json;
      inode = Codec.field Codec.int "inode" json;
      name = Codec.field Codec.string "name" json;
      process = Codec.field Codec.int "process" json;
      state = Codec.field Codec.string "state" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.some "descriptor" Codec.of_int it.descriptor;
        Codec.some "function" Codec.of_string it.function_;
        Codec.some "inode" Codec.of_int it.inode;
        Codec.some "name" Codec.of_string it.name;
        Codec.some "process" Codec.of_int it.process;
        Codec.some "state" Codec.of_string it.state;
      ]

  let make ~descriptor ~function_ ~inode ~name ~process ~state () =
    { descriptor; function_; inode; name; process; state }
end

(** Packets that passed from one element to another. *)
module ElementPassView = struct
  type t = {
    from : int;
        (** The element that they left, by its place in the list. *)
    input : int;
        (** The input. *)
    output : int;
        (** The output. *)
    packets : int;
        (** Their number. *)
    to_ : int;
        (** The element that they entered. *)
  }

  let of_json json =
    {
      from = Codec.field Codec.int "from" json;
      input = Codec.field Codec.int "input" json;
      output = Codec.field Codec.int "output" json;
      packets = Codec.field Codec.int "packets" json;
      to_ = Codec.field Codec.int "to" json;
    }
end

(** An element that a frame reached. *)
module ElementTraceView = struct
  type t = {
    class_ : string;
        (** Its class. *)
    has_state : bool;
        (** Whether what it does depends on packets that came before, so that the function that runs may do
            something else. *)
    kept : int;
        (** Packets that it dropped, or kept until the end of the trace. *)
    name : string;
        (** Its name. *)
  }

  let of_json json =
    {
      class_ = Codec.field Codec.string "class" json;
      has_state = Codec.field Codec.bool "has_state" json;
      kept = Codec.field Codec.int "kept" json;
      name = Codec.field Codec.string "name" json;
    }
end

(** A frame that a function sends. *)
module SentFrameView = struct
  type t = {
    after : int;
        (** Nanoseconds after the frame that it got. *)
    frame : string;
        (** The frame, in hexadecimal. *)
    port : string;
        (** The name by which its configuration knows the port. *)
  }

  let of_json json =
    {
      after = Codec.field Codec.int "after" json;
      frame = Codec.field Codec.string "frame" json;
      port = Codec.field Codec.string "port" json;
    }
end

(** What a function does with a frame, as a private instance of its configuration did in simulated time. *)
module FunctionTraceView = struct
  type t = {
    connections : ElementPassView.t list;
        (** How it got there. *)
    elements : ElementTraceView.t list;
        (** The elements that the frame reached, from the port on. *)
    input : string;
        (** The name by which its configuration knows the port. *)
    name : string;
        (** The function's name. *)
    omitted : int;
        (** Number of frames that it sends beside these. *)
    printed : string list;
        (** What its elements print. *)
    sent : SentFrameView.t list;
        (** The frames that it sends. *)
    state : string;
        (** Its state, such as `running`. *)
    unknown : string;
        (** Why it is not known what it does; empty if it is. *)
  }

  let of_json json =
    {
      connections = Codec.field (Codec.list ElementPassView.of_json) "connections" json;
      elements = Codec.field (Codec.list ElementTraceView.of_json) "elements" json;
      input = Codec.field Codec.string "input" json;
      name = Codec.field Codec.string "name" json;
      omitted = Codec.field Codec.int "omitted" json;
      printed = Codec.field (Codec.list Codec.string) "printed" json;
      sent = Codec.field (Codec.list SentFrameView.of_json) "sent" json;
      state = Codec.field Codec.string "state" json;
      unknown = Codec.field Codec.string "unknown" json;
    }
end

(** What a link does with a frame. *)
module LinkTraceView = struct
  type t = {
    corrupt : float;
        (** Probability that one of its bits is inverted. *)
    delay : int;
        (** Mean delay in nanoseconds. *)
    dropped : string option;
        (** Why it certainly drops the frame. *)
    duplicate : float;
        (** Probability that it arrives twice. *)
    from : string;
        (** The port whose frames this direction gets. *)
    jitter : int;
        (** The deviation from it, as the settings have it. *)
    loss : float;
        (** Probability that the frame is lost. *)
    mark : float;
        (** Probability that it is marked Congestion Experienced, if its transport is capable of that. *)
    name : string;
        (** The link's name. *)
    queueing : int;
        (** Nanoseconds that it takes to send the frames that wait now. *)
    sending : int;
        (** Nanoseconds that it takes to send this one. *)
    settings : (string * string) list;
        (** The settings that differ from their defaults, in the syntax of the file. *)
  }

  let of_json json =
    {
      corrupt = Codec.field Codec.float "corrupt" json;
      delay = Codec.field Codec.int "delay" json;
      dropped = Codec.optional Codec.string "dropped" json;
      duplicate = Codec.field Codec.float "duplicate" json;
      from = Codec.field Codec.string "from" json;
      jitter = Codec.field Codec.int "jitter" json;
      loss = Codec.field Codec.float "loss" json;
      mark = Codec.field Codec.float "mark" json;
      name = Codec.field Codec.string "name" json;
      queueing = Codec.field Codec.int "queueing" json;
      sending = Codec.field Codec.int "sending" json;
      settings = Codec.field (Codec.assoc Codec.string) "settings" json;
    }
end

(** A copy of a frame at its destination. *)
module DestinationView = struct
  type t = {
    completion : CompletionView.t option;
    function_ : FunctionTraceView.t option;
    hold : int;
        (** Nanoseconds that it waits at most. *)
    joins : bool option;
        (** Whether it is joined with segments of its flow that are taken at the same time. *)
    kind : string;
        (** Its kind. *)
    link : LinkTraceView.t option;
    next : int list;
        (** The numbers of the hops that follow. *)
    port : string;
        (** The port. *)
    queue : int;
        (** The number of the queue. *)
    reason : string option;
        (** Why it is dropped; for one that waits, why it will be if room does not come in time. *)
    retag : string option;
        (** What becomes of its VLAN tag: `inserted 10`, `set 10`, `removed`. *)
    verdict : string;
        (** `delivered`; `dropped`; `waits`: the destination is full, and the frame waits; `busy`: it could not
            be looked at. *)
  }

  let of_json json =
    {
      completion = Codec.optional CompletionView.of_json "completion" json;
      function_ = Codec.optional FunctionTraceView.of_json "function" json;
      hold = Codec.field Codec.int "hold" json;
      joins = Codec.optional Codec.bool "joins" json;
      kind = Codec.field Codec.string "kind" json;
      link = Codec.optional LinkTraceView.of_json "link" json;
      next = Codec.field (Codec.list Codec.int) "next" json;
      port = Codec.field Codec.string "port" json;
      queue = Codec.field Codec.int "queue" json;
      reason = Codec.optional Codec.string "reason" json;
      retag = Codec.optional Codec.string "retag" json;
      verdict = Codec.field Codec.string "verdict" json;
    }
end

(** One direction of an emulated link. *)
module DirectionView = struct
  type t = {
    carried : int option;
        (** Frames sent on the wire since the settings changed. *)
    corrupted : int;
        (** Frames with an inverted bit. *)
    delay_mean : int option;
        (** Mean time of a frame in the link since its settings changed, its queue included; 0 without frames.
            *)
    delay_sd : int option;
        (** The standard deviation of that time. *)
    drops : (string * int) list;
        (** Dropped frames by reason; reasons without drops are omitted. *)
    duplicated : int;
        (** Frames that arrived twice. *)
    from : string;
        (** The port that sends. *)
    in_flight : int;
        (** Frames under way. *)
    late : int option;
        (** Frames that left more than a millisecond after their due time, since the settings changed. *)
    late_ago : int option;
        (** Nanoseconds since the last of these left; null without any. *)
    latest : int;
        (** The longest time after its due time at which a frame left, since the settings changed. *)
    lost : int option;
        (** How many of these were lost there. *)
    marked : int;
        (** Frames marked Congestion Experienced. *)
    queued : int;
        (** Frames in its queue. *)
    queued_bytes : int;
        (** Their bytes. *)
    received : int;
        (** Frames that left it, duplicates included. *)
    received_bytes : int;
        (** Their bytes. *)
    reordered : int;
        (** Frames that overtook another. *)
    sent : int;
        (** Frames that entered the link. *)
    sent_bytes : int;
        (** Their bytes. *)
    settings : (string * string) list;
        (** The settings that differ from their defaults, in the syntax of the file. *)
    to_ : string;
        (** The port that receives. *)
  }

  let of_json json =
    {
      carried = Codec.optional Codec.int "carried" json;
      corrupted = Codec.field Codec.int "corrupted" json;
      delay_mean = Codec.optional Codec.int "delay_mean" json;
      delay_sd = Codec.optional Codec.int "delay_sd" json;
      drops = Codec.field (Codec.assoc Codec.int) "drops" json;
      duplicated = Codec.field Codec.int "duplicated" json;
      from = Codec.field Codec.string "from" json;
      in_flight = Codec.field Codec.int "in_flight" json;
      late = Codec.optional Codec.int "late" json;
      late_ago = Codec.optional Codec.int "late_ago" json;
      latest = Codec.field Codec.int "latest" json;
      lost = Codec.optional Codec.int "lost" json;
      marked = Codec.field Codec.int "marked" json;
      queued = Codec.field Codec.int "queued" json;
      queued_bytes = Codec.field Codec.int "queued_bytes" json;
      received = Codec.field Codec.int "received" json;
      received_bytes = Codec.field Codec.int "received_bytes" json;
      reordered = Codec.field Codec.int "reordered" json;
      sent = Codec.field Codec.int "sent" json;
      sent_bytes = Codec.field Codec.int "sent_bytes" json;
      settings = Codec.field (Codec.assoc Codec.string) "settings" json;
      to_ = Codec.field Codec.string "to" json;
    }
end

(** How to drain a host. *)
module DrainRequest = struct
  type t = {
    parallel : int option;
        (** VMs that move at a time, 1 to 100. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "parallel" Codec.of_int it.parallel;
      ]

  let make ?parallel () =
    { parallel }
end

(** Whether a host may run anything. *)
module HostStatus = struct
  type t =
    | Up
    | Preparing_for_maintenance
    | Maintenance
    | Down
    | Non_responsive
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "up" -> Up
    | "preparing_for_maintenance" -> Preparing_for_maintenance
    | "maintenance" -> Maintenance
    | "down" -> Down
    | "non_responsive" -> Non_responsive
    | other -> Other other
end

(** A VM that can't leave a drained host now. *)
module StuckView = struct
  type t = {
    forever : bool;
        (** Whether it never moves, so that only its end empties the host. *)
    vm : string;
        (** The VM. *)
    why : string;
        (** Why. *)
  }

  let of_json json =
    {
      forever = Codec.field Codec.bool "forever" json;
      vm = Codec.field Codec.string "vm" json;
      why = Codec.field Codec.string "why" json;
    }
end

(** A host that is drained. *)
module DrainView = struct
  type t = {
    host : string;
        (** The host. *)
    left : string list;
        (** Other VMs that are still on it. *)
    moves : Migration.t list;
        (** Moves that began with this request. *)
    moving : string list;
        (** VMs that have a host reserved and are still on this one. *)
    reserved : string list;
        (** VMs that are not on it, but for which it is reserved. *)
    status : HostStatus.t;
        (** Its status; `maintenance` when it is empty. *)
    stuck : StuckView.t list;
        (** Those that can't leave now. *)
  }

  let of_json json =
    {
      host = Codec.field Codec.string "host" json;
      left = Codec.field (Codec.list Codec.string) "left" json;
      moves = Codec.field (Codec.list Migration.of_json) "moves" json;
      moving = Codec.field (Codec.list Codec.string) "moving" json;
      reserved = Codec.field (Codec.list Codec.string) "reserved" json;
      status = Codec.field HostStatus.of_json "status" json;
      stuck = Codec.field (Codec.list StuckView.of_json) "stuck" json;
    }
end

(** Something that happened. *)
module EventView = struct
  type t = {
    id : int;
        (** Its number; later events have larger ones. *)
    kind : string;
        (** What happened, such as `peer-attached`. *)
    name : string;
        (** The port, guest or other object to which it happened; may be empty. *)
    text : string;
        (** More about it, for people; may be empty. *)
    time : int;
        (** When it happened, in nanoseconds since 1970. *)
  }

  let of_json json =
    {
      id = Codec.field Codec.int "id" json;
      kind = Codec.field Codec.string "kind" json;
      name = Codec.field Codec.string "name" json;
      text = Codec.field Codec.string "text" json;
      time = Codec.field Codec.int "time" json;
    }
end

(** Events. *)
module EventsView = struct
  type t = {
    events : Changed.t list;
        (** Changes, oldest first. *)
    revision : int;
        (** The revision for the next request. *)
  }

  let of_json json =
    {
      events = Codec.field (Codec.list Changed.of_json) "events" json;
      revision = Codec.field Codec.int "revision" json;
    }
end

(** A command for a guest. *)
module Exec = struct
  type t = {
    command : string;
        (** One line for its shell, of at most 3500 bytes. *)
    timeout : int;
        (** Time limit in seconds. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "command" Codec.of_string it.command;
        Codec.some "timeout" Codec.of_int it.timeout;
      ]

  let make ~command ~timeout () =
    { command; timeout }
end

(** The result of a command in a guest. *)
module ExecView = struct
  type t = {
    status : int;
        (** Exit status of the shell; 143 after the time limit. *)
    text : string;
        (** Its output, standard output and error. *)
  }

  let of_json json =
    {
      status = Codec.field Codec.int "status" json;
      text = Codec.field Codec.string "text" json;
    }
end

(** Accesses to a register, each an exit of the guest. *)
module RegisterView = struct
  type t = {
    mapped : bool;
        (** Whether the client may map it; accesses through the mapping are not counted. *)
    name : string;
        (** Its name. *)
    reads : int;
        (** Reads. *)
    writes : int;
        (** Writes. *)
  }

  let of_json json =
    {
      mapped = Codec.field Codec.bool "mapped" json;
      name = Codec.field Codec.string "name" json;
      reads = Codec.field Codec.int "reads" json;
      writes = Codec.field Codec.int "writes" json;
    }
end

(** Accesses to a card's registers and its interrupts since its client connected. *)
module ExitsView = struct
  type t = {
    held : int;
        (** Interrupts held back to the end of an interval. *)
    port : string;
        (** The port. *)
    raised : int;
        (** Interrupts raised. *)
    registers : RegisterView.t list;
        (** By register; those without accesses are left out. *)
    rx_doorbells : int;
        (** How often a worker found receive buffers announced. *)
    rx_frames : int;
        (** Frames that the guest received. *)
    tx_doorbells : int;
        (** How often a worker found frames to send announced, trapped or mapped. *)
    tx_frames : int;
        (** Frames that the guest sent. *)
  }

  let of_json json =
    {
      held = Codec.field Codec.int "held" json;
      port = Codec.field Codec.string "port" json;
      raised = Codec.field Codec.int "raised" json;
      registers = Codec.field (Codec.list RegisterView.of_json) "registers" json;
      rx_doorbells = Codec.field Codec.int "rx_doorbells" json;
      rx_frames = Codec.field Codec.int "rx_frames" json;
      tx_doorbells = Codec.field Codec.int "tx_doorbells" json;
      tx_frames = Codec.field Codec.int "tx_frames" json;
    }
end

(** A filter that a host does not pass, and why. *)
module Verdict = struct
  type t = {
    filter : string;
        (** The filter. *)
    reason : string;
        (** Why the host is rejected. *)
  }

  let of_json json =
    {
      filter = Codec.field Codec.string "filter" json;
      reason = Codec.field Codec.string "reason" json;
    }
end

(** The score of a host by one weight. *)
module WeightTrace = struct
  type t = {
    factor : int;
        (** The weight's factor. *)
    points : float;
        (** The selector's value before the factor: the rank, or the scaled score. *)
    raw : int;
        (** The raw score; lower is better. *)
    weight : string;
        (** The weight. *)
  }

  let of_json json =
    {
      factor = Codec.field Codec.int "factor" json;
      points = Codec.field Codec.float "points" json;
      raw = Codec.field Codec.int "raw" json;
      weight = Codec.field Codec.string "weight" json;
    }
end

(** A host's trace in a decision. *)
module HostTrace = struct
  type t = {
    host : string;
        (** The host. *)
    rejected : Verdict.t list;
        (** All filters that reject it, including those that ran later or not at all. *)
    removed_by : string option;
        (** The filter that removed it; none if it passed. *)
    score : float option;
        (** Its total score, if it passed. *)
    weights : WeightTrace.t list;
        (** Its scores, if it passed and hosts were weighed. *)
  }

  let of_json json =
    {
      host = Codec.field Codec.string "host" json;
      rejected = Codec.field (Codec.list Verdict.of_json) "rejected" json;
      removed_by = Codec.optional Codec.string "removed_by" json;
      score = Codec.optional Codec.float "score" json;
      weights = Codec.field (Codec.list WeightTrace.of_json) "weights" json;
    }
end

(** The full trace of the choice for VMs that are placed together. Hosts are sorted by name. *)
module Trace = struct
  type t = {
    filters : string list;
        (** Filters in their order. *)
    hosts : HostTrace.t list;
        (** Every host. *)
    vms : string list;
        (** The VMs. *)
  }

  let of_json json =
    {
      filters = Codec.field (Codec.list Codec.string) "filters" json;
      hosts = Codec.field (Codec.list HostTrace.of_json) "hosts" json;
      vms = Codec.field (Codec.list Codec.string) "vms" json;
    }
end

(** A decision with its details. *)
module ExplainView = struct
  type t = {
    decision : DecisionView.t;
        (** The decision. *)
    note : string;
        (** Why details are missing, if they are. *)
    traces : Trace.t list;
        (** Every host, for each group of VMs. *)
  }

  let of_json json =
    {
      decision = Codec.field DecisionView.of_json "decision" json;
      note = Codec.field Codec.string "note" json;
      traces = Codec.field (Codec.list Trace.of_json) "traces" json;
    }
end

(** A pod and nodes. *)
module ExtenderArgs = struct
  type t = {
    node_names : string list option;
        (** Names of nodes. *)
    pod : Yojson.Safe.t option;
        (** The pod as a Kubernetes object. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "NodeNames" (Codec.of_list Codec.of_string) it.node_names;
        Codec.given "Pod" Fun.id it.pod;
      ]

  let make ?node_names ?pod () =
    { node_names; pod }
end

(** A pod and its node. *)
module ExtenderBindingArgs = struct
  type t = {
    node : string option;
        (** The node. *)
    pod_name : string option;
        (** The pod. *)
    pod_namespace : string option;
        (** Its namespace. *)
    pod_uid : string option;
        (** Its UID. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "Node" Codec.of_string it.node;
        Codec.given "PodName" Codec.of_string it.pod_name;
        Codec.given "PodNamespace" Codec.of_string it.pod_namespace;
        Codec.given "PodUID" Codec.of_string it.pod_uid;
      ]

  let make ?node ?pod_name ?pod_namespace ?pod_uid () =
    { node; pod_name; pod_namespace; pod_uid }
end

(** The nodes that can take a pod. *)
module ExtenderFilterResult = struct
  type t = {
    error : string option;
        (** The error; empty if none. *)
    failed_and_unresolvable_nodes : (string * string) list option;
        (** Nodes that can't take the pod even if pods are evicted, with reasons. *)
    failed_nodes : (string * string) list option;
        (** Unsuitable nodes, with reasons. *)
    node_names : string list option;
        (** Suitable nodes. *)
  }

  let of_json json =
    {
      error = Codec.optional Codec.string "Error" json;
      failed_and_unresolvable_nodes = Codec.optional (Codec.assoc Codec.string) "FailedAndUnresolvableNodes" json;
      failed_nodes = Codec.optional (Codec.assoc Codec.string) "FailedNodes" json;
      node_names = Codec.optional (Codec.list Codec.string) "NodeNames" json;
    }
end

(** A node of the fabric's graph. *)
module FabricNode = struct
  type t = {
    detail : string;
        (** Its kind and state; of a switch its lookup, of a link its rate and delay. *)
    drops : int;
        (** Frames dropped at a port or on a link. *)
    name : string;
        (** Its name. *)
    rx_frames : int;
        (** Frames that it received; those that left a link. *)
    tx_frames : int;
        (** Frames that the peer of a port sent during the sample; the sum over the ports of a guest, a function
            or a switch; frames that entered a link. *)
    what : string;
        (** `guest`, `port`, `switch`, `link` or `function`. *)
  }

  let of_json json =
    {
      detail = Codec.field Codec.string "detail" json;
      drops = Codec.field Codec.int "drops" json;
      name = Codec.field Codec.string "name" json;
      rx_frames = Codec.field Codec.int "rx_frames" json;
      tx_frames = Codec.field Codec.int "tx_frames" json;
      what = Codec.field Codec.string "what" json;
    }
end

(** The fabric as a graph: who has ports, and what joins them. *)
module FabricGraphView = struct
  type t = {
    edges : (int * int) list;
        (** Pairs of nodes that are connected; indexes. *)
    nanoseconds : int;
        (** Length of the sample in nanoseconds. *)
    nodes : FabricNode.t list;
        (** Guests, ports, switches, links and functions. *)
  }

  let of_json json =
    {
      edges = Codec.field (Codec.list (function `List [ x0; x1 ] -> (Codec.int x0, Codec.int x1) | json -> Codec.wrong "2 values" json)) "edges" json;
      nanoseconds = Codec.field Codec.int "nanoseconds" json;
      nodes = Codec.field (Codec.list FabricNode.of_json) "nodes" json;
    }
end

(** A switch. *)
module SwitchView = struct
  type t = {
    flows : int option;
        (** Number of its flows, if its lookup is `flow`. *)
    lookup : string;
        (** The lookup that finds a frame's port: `learning`, `static`, `hash` or `flow`. *)
    name : string;
        (** Its name. *)
    ports : string list;
        (** Names of its ports. *)
  }

  let of_json json =
    {
      flows = Codec.optional Codec.int "flows" json;
      lookup = Codec.field Codec.string "lookup" json;
      name = Codec.field Codec.string "name" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
    }
end

(** A worker. *)
module WorkerView = struct
  type t = {
    active : int;
        (** Number of queues that it polls now. *)
    busy : int;
        (** Nanoseconds of turns in which frames moved. *)
    name : string;
        (** Its name. *)
    node : int option;
        (** The NUMA node that it and its ports' memory are on: the configured one, or on a host with several
            that of its core. *)
    note : string option;
        (** A problem with it; empty if there is none. *)
    queues : int;
        (** Number of queues that it serves. *)
    sleeps : int;
        (** Times it went to sleep. *)
    turns : int;
        (** Turns since its start. *)
  }

  let of_json json =
    {
      active = Codec.field Codec.int "active" json;
      busy = Codec.field Codec.int "busy" json;
      name = Codec.field Codec.string "name" json;
      node = Codec.optional Codec.int "node" json;
      note = Codec.optional Codec.string "note" json;
      queues = Codec.field Codec.int "queues" json;
      sleeps = Codec.field Codec.int "sleeps" json;
      turns = Codec.field Codec.int "turns" json;
    }
end

(** The fabric as a whole. *)
module FabricView = struct
  type t = {
    data_pid : int;
        (** Process ID of `data`; 0 while it is being restarted. *)
    file : string;
        (** The file that describes it. *)
    functions : int option;
        (** Number of functions. *)
    guests : int;
        (** Number of guests. *)
    name : string;
        (** Its name. *)
    pid : int;
        (** Process ID of `control`. *)
    ports : int;
        (** Number of ports. *)
    restarts : int;
        (** Number of restarts of `data`. *)
    run : string;
        (** Its run directory. *)
    switches : SwitchView.t list;
        (** Its switches. *)
    uptime : int;
        (** Nanoseconds since the fabric came up. *)
    version : string;
        (** Version of the program. *)
    workers : WorkerView.t list;
        (** Its workers. *)
  }

  let of_json json =
    {
      data_pid = Codec.field Codec.int "data_pid" json;
      file = Codec.field Codec.string "file" json;
      functions = Codec.optional Codec.int "functions" json;
      guests = Codec.field Codec.int "guests" json;
      name = Codec.field Codec.string "name" json;
      pid = Codec.field Codec.int "pid" json;
      ports = Codec.field Codec.int "ports" json;
      restarts = Codec.field Codec.int "restarts" json;
      run = Codec.field Codec.string "run" json;
      switches = Codec.field (Codec.list SwitchView.of_json) "switches" json;
      uptime = Codec.field Codec.int "uptime" json;
      version = Codec.field Codec.string "version" json;
      workers = Codec.field (Codec.list WorkerView.of_json) "workers" json;
    }
end

(** A fact about a host. *)
module FactPush = struct
  type t = {
    host : string;
        (** The host. *)
    name : string;
        (** Its name: a letter, then letters, digits and `_`. *)
    ttl : int option;
        (** Milliseconds until it expires; never if unset. *)
    value : float;
        (** The value. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "host" Codec.of_string it.host;
        Codec.some "name" Codec.of_string it.name;
        Codec.given "ttl" Codec.of_int it.ttl;
        Codec.some "value" Codec.of_float it.value;
      ]

  let make ~host ~name ?ttl ~value () =
    { host; name; ttl; value }
end

(** What happens if an external filter fails: it raises, hangs, or is not there. *)
module OnError = struct
  type t =
    | Refuse
    | Skip
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "refuse" -> Refuse
    | "skip" -> Skip
    | other -> Other other
end

(** When a filter runs. *)
module Position = struct
  type t =
    | First
    | Middle
    | Last
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "first" -> First
    | "middle" -> Middle
    | "last" -> Last
    | other -> Other other
end

(** A filter in a policy. *)
module FilterUse = struct
  type t = {
    name : string;
        (** Its name. *)
    on_error : OnError.t option;
        (** What happens if this external unit fails. *)
    position : Position.t option;
        (** When it runs. *)
    required : bool option;
        (** Whether a placement fails if this external unit fails, whatever `on_error` is. *)
  }

  let of_json json =
    {
      name = Codec.field Codec.string "name" json;
      on_error = Codec.optional OnError.of_json "on_error" json;
      position = Codec.optional Position.of_json "position" json;
      required = Codec.optional Codec.bool "required" json;
    }
end

(** The number that flows have for a port. *)
module FlowPortView = struct
  type t = {
    name : string;
        (** The port, which may be gone: it has this number when it comes again. *)
    number : int;
        (** The number. *)
  }

  let of_json json =
    {
      name = Codec.field Codec.string "name" json;
      number = Codec.field Codec.int "number" json;
    }
end

(** A flow. *)
module FlowView = struct
  type t = {
    bytes : int;
        (** Bytes of these. *)
    packets : int;
        (** Frames that it matched. *)
    text : string;
        (** The flow, as `ovs-ofctl dump-flows` shows it. *)
  }

  let of_json json =
    {
      bytes = Codec.field Codec.int "bytes" json;
      packets = Codec.field Codec.int "packets" json;
      text = Codec.field Codec.string "text" json;
    }
end

(** A change of flow tables: all of it is made, or nothing. *)
module FlowsChange = struct
  type t = {
    changes : string option;
        (** Changes, one a line, as in a bundle of `ovs-ofctl`: `flow add FLOW`, `flow modify FLOW`, `flow
            delete MATCH`, `group add GROUP`, `meter add METER`. `flow` and `add` may be left out. Only in
            `POST`. *)
    command : string option;
        (** The command of all lines of `changes`, which then have none, such as `flow delete_strict`. *)
    dry_run : bool option;
        (** Whether nothing is changed: the answer has the difference. Only in `PUT`. *)
    revision : int option;
        (** The revision that is changed; with another one, the change is refused. *)
    rules : string option;
        (** All flows, groups and meters that there shall be, one a line. Only in `PUT`. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "changes" Codec.of_string it.changes;
        Codec.given "command" Codec.of_string it.command;
        Codec.given "dry_run" Codec.of_bool it.dry_run;
        Codec.given "revision" Codec.of_int it.revision;
        Codec.given "rules" Codec.of_string it.rules;
      ]

  let make ?changes ?command ?dry_run ?revision ?rules () =
    { changes; command; dry_run; revision; rules }
end

(** What a change has done. *)
module FlowsChanged = struct
  type t = {
    count : int;
        (** Flows that were added, changed or removed. *)
    difference : string list;
        (** What `PUT` has changed, or would: lines that begin with `-` are gone, lines with `+` are new. *)
    revision : int;
        (** Number of the changes so far. *)
  }

  let of_json json =
    {
      count = Codec.field Codec.int "count" json;
      difference = Codec.field (Codec.list Codec.string) "difference" json;
      revision = Codec.field Codec.int "revision" json;
    }
end

(** A meter. *)
module MeterView = struct
  type t = {
    dropped : int;
        (** Frames that it dropped. *)
    packets : int;
        (** Frames that came to it. *)
    text : string;
        (** The meter, as `ovs-ofctl dump-meters` shows it. *)
  }

  let of_json json =
    {
      dropped = Codec.field Codec.int "dropped" json;
      packets = Codec.field Codec.int "packets" json;
      text = Codec.field Codec.string "text" json;
    }
end

(** The flow tables of a switch. *)
module FlowsView = struct
  type t = {
    flows : FlowView.t list;
        (** The flows that are meant, by table, priority and match. *)
    groups : string list;
        (** The groups, as `ovs-ofctl dump-groups` shows them. *)
    meters : MeterView.t list;
        (** The meters. *)
    omitted : int;
        (** Number of flows that are not among them, since the answer would be too long. *)
    ports : FlowPortView.t list;
        (** The numbers of ports. *)
    revision : int;
        (** Number of the changes so far. *)
    rules : string;
        (** All flows, groups and meters, one a line, as `PUT` takes them; empty if they are many. *)
    switch : string;
        (** The switch. *)
  }

  let of_json json =
    {
      flows = Codec.field (Codec.list FlowView.of_json) "flows" json;
      groups = Codec.field (Codec.list Codec.string) "groups" json;
      meters = Codec.field (Codec.list MeterView.of_json) "meters" json;
      omitted = Codec.field Codec.int "omitted" json;
      ports = Codec.field (Codec.list FlowPortView.of_json) "ports" json;
      revision = Codec.field Codec.int "revision" json;
      rules = Codec.field Codec.string "rules" json;
      switch = Codec.field Codec.string "switch" json;
    }
end

(** An element of a graph. *)
module GraphElement = struct
  type t = {
    class_ : string;
        (** Its class. *)
    name : string;
        (** Its name. *)
    packets : int;
        (** Packets that entered it; of a source, those that it emitted. *)
    ticks : int;
        (** Ticks of the processor's clock in it. *)
  }

  let of_json json =
    {
      class_ = Codec.field Codec.string "class" json;
      name = Codec.field Codec.string "name" json;
      packets = Codec.field Codec.int "packets" json;
      ticks = Codec.field Codec.int "ticks" json;
    }
end

(** Where a function's time went. *)
module FunctionProfileView = struct
  type t = {
    elements : GraphElement.t list;
        (** Its elements, if they were asked for. *)
    name : string;
        (** Its name. *)
    time : int;
        (** Nanoseconds on its worker. *)
    turns : int;
        (** Turns on its worker. *)
    worker : string;
        (** Its worker; empty if it has a process or a VM of its own. *)
  }

  let of_json json =
    {
      elements = Codec.field (Codec.list GraphElement.of_json) "elements" json;
      name = Codec.field Codec.string "name" json;
      time = Codec.field Codec.int "time" json;
      turns = Codec.field Codec.int "turns" json;
      worker = Codec.field Codec.string "worker" json;
    }
end

(** A function. *)
module FunctionView = struct
  type t = {
    configuration : string;
        (** The file of its configuration, or where its text comes from; `inline` if nobody said so. *)
    handlers : string;
        (** The socket of its handlers, a ControlSocket. *)
    isolation : string option;
        (** What separates it from the rest of the fabric: `process`, `vm` or `worker`. *)
    name : string;
        (** Its name. *)
    pid : int;
        (** Process ID; 0 if it does not run. *)
    ports : string list;
        (** Its ports. *)
    reason : string;
        (** Why it last ended, or does not run although it should. *)
    restarts : int;
        (** Number of automatic restarts since it was started. *)
    state : string;
        (** `stopped`, `dormant` (it starts when it is needed), `queued` (it starts once fewer others do),
            `starting`, `running`, `draining` (an instance that gets no new flows), `suspended`, or `ended` (and
            about to be restarted). *)
  }

  let of_json json =
    {
      configuration = Codec.field Codec.string "configuration" json;
      handlers = Codec.field Codec.string "handlers" json;
      isolation = Codec.optional Codec.string "isolation" json;
      name = Codec.field Codec.string "name" json;
      pid = Codec.field Codec.int "pid" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
      reason = Codec.field Codec.string "reason" json;
      restarts = Codec.field Codec.int "restarts" json;
      state = Codec.field Codec.string "state" json;
    }
end

(** A connection of a graph, from an output to an input; elements are indexes. *)
module GraphConnection = struct
  type t = {
    from : int;
        (** The element that sends. *)
    input : int;
        (** The input of the receiving element. *)
    output : int;
        (** Its output. *)
    packets : int;
        (** Packets that passed. *)
    to_ : int;
        (** The element that receives. *)
  }

  let of_json json =
    {
      from = Codec.field Codec.int "from" json;
      input = Codec.field Codec.int "input" json;
      output = Codec.field Codec.int "output" json;
      packets = Codec.field Codec.int "packets" json;
      to_ = Codec.field Codec.int "to" json;
    }
end

(** The graph of a running function, with what passed during a sample. *)
module GraphView = struct
  type t = {
    connections : GraphConnection.t list;
        (** Its connections. *)
    elements : GraphElement.t list;
        (** Its elements. *)
    nanoseconds : int;
        (** Length of the sample in nanoseconds. *)
  }

  let of_json json =
    {
      connections = Codec.field (Codec.list GraphConnection.of_json) "connections" json;
      elements = Codec.field (Codec.list GraphElement.of_json) "elements" json;
      nanoseconds = Codec.field Codec.int "nanoseconds" json;
    }
end

(** A port with a member of a group, or with a router. *)
module GroupEntryView = struct
  type t = {
    group : string option;
        (** The group's address; none for a router, which gets all groups. *)
    left : int;
        (** For how many more seconds, unless the member or router says it again. *)
    port : string;
        (** The port. *)
    vlan : int;
        (** The number of the VLAN; 0: none. *)
  }

  let of_json json =
    {
      group = Codec.optional Codec.string "group" json;
      left = Codec.field Codec.int "left" json;
      port = Codec.field Codec.string "port" json;
      vlan = Codec.field Codec.int "vlan" json;
    }
end

(** The members of groups that a switch knows. *)
module GroupsView = struct
  type t = {
    entries : GroupEntryView.t list;
        (** Its entries. *)
    snooping : bool;
        (** Whether it snoops: otherwise every port gets every group. *)
    switch : string;
        (** The switch. *)
  }

  let of_json json =
    {
      entries = Codec.field (Codec.list GroupEntryView.of_json) "entries" json;
      snooping = Codec.field Codec.bool "snooping" json;
      switch = Codec.field Codec.string "switch" json;
    }
end

(** A port of a guest that is to arrive. *)
module MovingPort = struct
  type t = {
    memory : int;
        (** Bytes of memory that it may be given. *)
    mtu : int option;
        (** The MTU that it offers, if it does. *)
    name : string;
        (** Its name. *)
    queues : int;
        (** Its queue pairs. *)
    without : string list;
        (** Features that it does not offer. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "memory" Codec.of_int it.memory;
        Codec.given "mtu" Codec.of_int it.mtu;
        Codec.some "name" Codec.of_string it.name;
        Codec.some "queues" Codec.of_int it.queues;
        Codec.some "without" (Codec.of_list Codec.of_string) it.without;
      ]

  let make ~memory ?mtu ~name ~queues ~without () =
    { memory; mtu; name; queues; without }
end

(** A guest that is to arrive. *)
module GuestArrival = struct
  type t = {
    accelerator : string;
        (** `KVM` or `TCG`. *)
    command_line : string;
        (** Its kernel's command line. *)
    initrd : string;
        (** Size and hash of its initial file system. *)
    kernel : string;
        (** Size and hash of its kernel. *)
    machine : string;
        (** QEMU's machine type. *)
    macs : string list;
        (** The addresses of its interfaces. *)
    memory : int;
        (** Memory in MiB. *)
    name : string;
        (** Its name. *)
    ports : MovingPort.t list;
        (** Its ports. *)
    processor : string;
        (** The model of its processor. *)
    processors : int;
        (** Virtual processors. *)
    qemu : string;
        (** QEMU's version. *)
    ticket : string;
        (** The attempt; no two have the same. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "accelerator" Codec.of_string it.accelerator;
        Codec.some "command_line" Codec.of_string it.command_line;
        Codec.some "initrd" Codec.of_string it.initrd;
        Codec.some "kernel" Codec.of_string it.kernel;
        Codec.some "machine" Codec.of_string it.machine;
        Codec.some "macs" (Codec.of_list Codec.of_string) it.macs;
        Codec.some "memory" Codec.of_int it.memory;
        Codec.some "name" Codec.of_string it.name;
        Codec.some "ports" (Codec.of_list MovingPort.to_json) it.ports;
        Codec.some "processor" Codec.of_string it.processor;
        Codec.some "processors" Codec.of_int it.processors;
        Codec.some "qemu" Codec.of_string it.qemu;
        Codec.some "ticket" Codec.of_string it.ticket;
      ]

  let make ~accelerator ~command_line ~initrd ~kernel ~machine ~macs ~memory ~name ~ports ~processor
           ~processors ~qemu ~ticket () =
    { accelerator; command_line; initrd; kernel; machine; macs; memory; name; ports; processor; processors;
      qemu; ticket }
end

(** A guest. *)
module GuestView = struct
  type t = {
    console : string;
        (** The log of its console. *)
    kind : string;
        (** `uml` or `qemu`. *)
    name : string;
        (** Its name. *)
    note : string;
        (** The runner in use, such as `QEMU with KVM`. *)
    pid : int;
        (** Process ID; 0 if it has no process of its own, or does not run. *)
    ports : string list;
        (** Its ports. *)
    reason : string;
        (** Why it does not run although it should, with the last line of its console if it has ended; while it
            starts, what that waits for. *)
    state : string;
        (** `stopped`, `starting`, `arriving` from another fabric, `running`, `stopping` or `ended`. *)
  }

  let of_json json =
    {
      console = Codec.field Codec.string "console" json;
      kind = Codec.field Codec.string "kind" json;
      name = Codec.field Codec.string "name" json;
      note = Codec.field Codec.string "note" json;
      pid = Codec.field Codec.int "pid" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
      reason = Codec.field Codec.string "reason" json;
      state = Codec.field Codec.string "state" json;
    }
end

(** A handler's value. *)
module HandlerValue = struct
  type t = {
    value : string;
        (** The value; invalid UTF-8 is replaced. *)
  }

  let of_json json =
    {
      value = Codec.field Codec.string "value" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.some "value" Codec.of_string it.value;
      ]

  let make ~value () =
    { value }
end

(** A copy of a frame for a port that mirrors another one. *)
module MirroredView = struct
  type t = {
    leaves : bool;
        (** Whether the frame is copied as it goes to the mirrored port, instead of as it comes from there. *)
    of_ : string;
        (** The mirrored port. *)
    port : string;
        (** The port that gets the copy. *)
  }

  let of_json json =
    {
      leaves = Codec.field Codec.bool "leaves" json;
      of_ = Codec.field Codec.string "of" json;
      port = Codec.field Codec.string "port" json;
    }
end

(** Who gets a packet to a group. *)
module MulticastView = struct
  type t = {
    group : string option;
        (** The group's address; none for a message of IGMP or MLD. *)
    ports : string list option;
        (** The ports of members and routers; none: all ports get it. *)
  }

  let of_json json =
    {
      group = Codec.optional Codec.string "group" json;
      ports = Codec.optional (Codec.list Codec.string) "ports" json;
    }
end

(** A frame that enters the fabric at a port. *)
module HopView = struct
  type t = {
    after : int option;
        (** The number of the hop before; null for the first. *)
    destinations : DestinationView.t list;
        (** Where copies of it go. *)
    dropped : string option;
        (** Why the frame is dropped at this port. *)
    flows : string list option;
        (** What flow tables do with it: a line for each table, group and meter. *)
    frame : string;
        (** The frame, in hexadecimal. *)
    held : bool;
        (** Whether the port's frames wait now, since a function that they are for does not run yet. *)
    learned : string option;
        (** What a learning switch does with the source address: `known`, `new`, `moved`, `refused`, `limited`.
            *)
    length : int;
        (** Its length in bytes. *)
    lookup : string;
        (** What the lookup finds: `known`, `flooded`, `unknown`, `reserved`, `invalid`; `flow` where flow
            tables decide; `patch`, `instance`, `nowhere` where there is no switch. *)
    mirrored : MirroredView.t list option;
        (** Copies for ports that mirror others. *)
    multicast : MulticastView.t option;
    note : string;
        (** Why the frame was not followed here; empty if it was. *)
    number : int;
        (** Its number, from 1. *)
    omitted : int;
        (** Number of destinations that were not looked at. *)
    port : string;
        (** The port. *)
    sender : string option;
        (** Whether its sender's addresses are `allowed`, or why not, if the port restricts them. *)
    summary : string;
        (** What it is. *)
    table : string;
        (** The switch's lookup: `learning`, `static`, `hash` or `flow`; empty without a switch. *)
    through : string;
        (** What the frame passed in between, such as `function wall` or `link line`; empty for the first. *)
    to_ : string;
        (** What the port is connected to: `switch main`, `patch b`. *)
    vlan : int option;
        (** Its VLAN, if a port of the switch has policy. *)
    worker : string;
        (** The worker that serves the port. *)
  }

  let of_json json =
    {
      after = Codec.optional Codec.int "after" json;
      destinations = Codec.field (Codec.list DestinationView.of_json) "destinations" json;
      dropped = Codec.optional Codec.string "dropped" json;
      flows = Codec.optional (Codec.list Codec.string) "flows" json;
      frame = Codec.field Codec.string "frame" json;
      held = Codec.field Codec.bool "held" json;
      learned = Codec.optional Codec.string "learned" json;
      length = Codec.field Codec.int "length" json;
      lookup = Codec.field Codec.string "lookup" json;
      mirrored = Codec.optional (Codec.list MirroredView.of_json) "mirrored" json;
      multicast = Codec.optional MulticastView.of_json "multicast" json;
      note = Codec.field Codec.string "note" json;
      number = Codec.field Codec.int "number" json;
      omitted = Codec.field Codec.int "omitted" json;
      port = Codec.field Codec.string "port" json;
      sender = Codec.optional Codec.string "sender" json;
      summary = Codec.field Codec.string "summary" json;
      table = Codec.field Codec.string "table" json;
      through = Codec.field Codec.string "through" json;
      to_ = Codec.field Codec.string "to" json;
      vlan = Codec.optional Codec.int "vlan" json;
      worker = Codec.field Codec.string "worker" json;
    }
end

(** An interface of a host. *)
module HostInterfaceView = struct
  type t = {
    addresses : string list;
        (** Its addresses, each with the length of its prefix. *)
    name : string;
        (** Its name in the host. *)
    port : string;
        (** The port whose interface it is. *)
    state : string;
        (** The port's state. *)
  }

  let of_json json =
    {
      addresses = Codec.field (Codec.list Codec.string) "addresses" json;
      name = Codec.field Codec.string "name" json;
      port = Codec.field Codec.string "port" json;
      state = Codec.field Codec.string "state" json;
    }
end

(** A node's priority. *)
module HostPriority = struct
  type t = {
    host : string;
        (** The node. *)
    score : int;
        (** Its priority, 0 to 10; higher is better. *)
  }

  let of_json json =
    {
      host = Codec.field Codec.string "Host" json;
      score = Codec.field Codec.int "Score" json;
    }
end

(** A program of a host. *)
module HostProgramView = struct
  type t = {
    command : string;
        (** The command of the shell. *)
    pid : int;
        (** Process ID of its shell; 0 if it does not run. *)
    reason : string;
        (** How it ended. *)
    state : string;
        (** `starting`, `running` or `ended`. *)
  }

  let of_json json =
    {
      command = Codec.field Codec.string "command" json;
      pid = Codec.field Codec.int "pid" json;
      reason = Codec.field Codec.string "reason" json;
      state = Codec.field Codec.string "state" json;
    }
end

(** A host with its figures. *)
module HostRow = struct
  type t = {
    blacklisted : string;
        (** Why it is blacklisted; empty if it is not. *)
    cluster : string;
        (** Its cluster. *)
    cpus : int;
        (** CPUs. *)
    facts : (string * float) list;
        (** External facts that have not expired. *)
    load : float;
        (** Load of its CPUs in percent, including that of pending VMs. *)
    memory_mb : int;
        (** Memory in MB. *)
    name : string;
        (** Its name. *)
    pending : int;
        (** Pending VMs. *)
    schedulable_mb : int;
        (** Memory in MB that can still be reserved. *)
    status : HostStatus.t;
        (** Whether it is in use. *)
    vcpus : float;
        (** Virtual CPUs, or the VMs' configured shares, including pending VMs. *)
    vms : int;
        (** VMs that run. *)
  }

  let of_json json =
    {
      blacklisted = Codec.field Codec.string "blacklisted" json;
      cluster = Codec.field Codec.string "cluster" json;
      cpus = Codec.field Codec.int "cpus" json;
      facts = Codec.field (Codec.assoc Codec.float) "facts" json;
      load = Codec.field Codec.float "load" json;
      memory_mb = Codec.field Codec.int "memory_mb" json;
      name = Codec.field Codec.string "name" json;
      pending = Codec.field Codec.int "pending" json;
      schedulable_mb = Codec.field Codec.int "schedulable_mb" json;
      status = Codec.field HostStatus.of_json "status" json;
      vcpus = Codec.field Codec.float "vcpus" json;
      vms = Codec.field Codec.int "vms" json;
    }
end

(** A host: a network namespace with interfaces of ports. *)
module HostView = struct
  type t = {
    interfaces : HostInterfaceView.t list;
        (** Its interfaces. *)
    name : string;
        (** Its name. *)
    namespace : string;
        (** The file that keeps its namespace, as for `nsenter --net=`. *)
    output : string;
        (** The file with the output of its programs. *)
    programs : HostProgramView.t list;
        (** Its programs. *)
    state : string;
        (** `up`, or `stopping` while processes in it are being ended: it is removed, or its programs change. *)
  }

  let of_json json =
    {
      interfaces = Codec.field (Codec.list HostInterfaceView.of_json) "interfaces" json;
      name = Codec.field Codec.string "name" json;
      namespace = Codec.field Codec.string "namespace" json;
      output = Codec.field Codec.string "output" json;
      programs = Codec.field (Codec.list HostProgramView.of_json) "programs" json;
      state = Codec.field Codec.string "state" json;
    }
end

(** The cluster that the fabric's own host is to belong to. *)
module JoinRequest = struct
  type t = {
    cluster : string option;
        (** The cluster. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "cluster" Codec.of_string it.cluster;
      ]

  let make ?cluster () =
    { cluster }
end

(** The fabric's own host. *)
module JoinView = struct
  type t = {
    cluster : string;
        (** Its cluster. *)
    host : string;
        (** Its name. *)
  }

  let of_json json =
    {
      cluster = Codec.field Codec.string "cluster" json;
      host = Codec.field Codec.string "host" json;
    }
end

(** New settings of an emulated link. *)
module LinkChange = struct
  type t = {
    from : string option option;
        (** The port of the direction to change; without it, both change. *)
    settings : (string * string option) list;
        (** Values by key, in the syntax of the file; null for the default. Other settings stay. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "from" (Codec.of_nullable Codec.of_string) it.from;
        Codec.some "settings" (Codec.of_assoc (Codec.of_nullable Codec.of_string)) it.settings;
      ]

  let make ?from ~settings () =
    { from; settings }
end

(** An emulated link. *)
module LinkView = struct
  type t = {
    directions : DirectionView.t list;
        (** Its two directions. *)
    name : string;
        (** Its name. *)
  }

  let of_json json =
    {
      directions = Codec.field (Codec.list DirectionView.of_json) "directions" json;
      name = Codec.field Codec.string "name" json;
    }
end

(** One of the two fabrics of a migration. *)
module MigrationEnd = struct
  type t =
    | Source
    | Destination
    | Other of string  (** One that a later version has. *)

  let to_json = function
    | Source -> `String "source"
    | Destination -> `String "destination"
    | Other other -> `String other
end

(** An operator's decision about a guest of which nobody can say where it runs. *)
module MigrationDecision = struct
  type t = {
    runs_at : MigrationEnd.t;
        (** Where it runs from now on. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "runs_at" MigrationEnd.to_json it.runs_at;
      ]

  let make ~runs_at () =
    { runs_at }
end

(** How far a migration is. *)
module MigrationView = struct
  type t = {
    downtime : int;
        (** Milliseconds for which QEMU had stopped the guest. *)
    error : string;
        (** Why it failed. *)
    guest : string;
        (** The guest. *)
    remaining : int;
        (** Bytes of memory that are left, as far as is known. *)
    resolved : string option;
        (** Where an operator decided that the guest runs, `source` or `destination`, if nobody could say it. *)
    rounds : int;
        (** How often changed pages were looked for. *)
    stage : string;
        (** `preparing`, `copying`, `stopping`, `activating`, `asking` (whether the other fabric has activated
            it), and at the end `done`, `failed` or `cancelled`. *)
    to_ : string;
        (** The control socket or the address of the other fabric. *)
    total : int;
        (** Bytes of memory of the guest. *)
    transferred : int;
        (** Bytes of memory that were sent. *)
  }

  let of_json json =
    {
      downtime = Codec.field Codec.int "downtime" json;
      error = Codec.field Codec.string "error" json;
      guest = Codec.field Codec.string "guest" json;
      remaining = Codec.field Codec.int "remaining" json;
      resolved = Codec.optional Codec.string "resolved" json;
      rounds = Codec.field Codec.int "rounds" json;
      stage = Codec.field Codec.string "stage" json;
      to_ = Codec.field Codec.string "to" json;
      total = Codec.field Codec.int "total" json;
      transferred = Codec.field Codec.int "transferred" json;
    }
end

(** A clone to create. *)
module NewClone = struct
  type t = {
    name : string;
        (** The name of the new function. *)
    ports : string list;
        (** Its ports, in place of those of the original, in their order: ports of kind `ring` that nobody has.
            *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "name" Codec.of_string it.name;
        Codec.some "ports" (Codec.of_list Codec.of_string) it.ports;
      ]

  let make ~name ~ports () =
    { name; ports }
end

(** A new configuration of a function. *)
module NewConfiguration = struct
  type t = {
    configuration : string;
        (** The configuration, in Click's language. *)
    source : string option;
        (** Where it comes from, such as the path of a file, for people. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "configuration" Codec.of_string it.configuration;
        Codec.given "source" Codec.of_string it.source;
      ]

  let make ~configuration ?source () =
    { configuration; source }
end

(** A fabric file. *)
module NewFabric = struct
  type t = {
    dry_run : bool option;
        (** Whether nothing is changed: the answer has the changes that would be made. *)
    file : string;
        (** Its path, absolute: relative paths of guests' files in it are relative to its folder. *)
    text : string;
        (** Its text. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "dry_run" Codec.of_bool it.dry_run;
        Codec.some "file" Codec.of_string it.file;
        Codec.some "text" Codec.of_string it.text;
      ]

  let make ?dry_run ~file ~text () =
    { dry_run; file; text }
end

(** A function to create: its name, and the keys of `\[function.NAME\]`. *)
module NewFunction = struct
  type t = {
    addresses : string list option;
        (** of a program: its address, such as 10.0.0.2/24, or `dhcp` *)
    arguments : string list option;
        (** of a program: its arguments *)
    burst : int option;
        (** largest number of frames that it handles at once *)
    click : string option;
        (** the text of its configuration *)
    config : string option;
        (** the file of its configuration *)
    configuration : string option;
        (** Its configuration, in Click's language. *)
    core : int option;
        (** the core that it is pinned to *)
    devices : (string * string) list option;
        (** its devices, and the port that each stands for *)
    fallback : string option;
        (** of a VM: `process`: it runs as a process where the host has no KVM *)
    gateways : string list option;
        (** of a program: its next hop *)
    idle : string option;
        (** with `first-frame`: the time without frames after which it ends until the next frame for it *)
    image : string option;
        (** the image of a program, which runs in a VM instead *)
    instances : Yojson.Safe.t option;
        (** how it multiplies under load, in a chain *)
    isolation : string option;
        (** what separates it from the rest of the fabric: `process`, `vm` or `worker` *)
    mac : string option;
        (** of a program: its MAC address *)
    memory : Yojson.Safe.t option;
        (** its memory limit *)
    name : string;
        (** Its name. *)
    parameters : (string * string) list option;
        (** the configuration's parameters, names and values *)
    ports : string list;
        (** a port of kind `ring` that no guest or function has *)
    snapshots : bool option;
        (** of a VM: whether snapshots of it may be taken *)
    source : string option;
        (** Where that comes from, such as the path of a file, for people. *)
    start : string option;
        (** whether it starts at once, or with the first frame for it: `true`, `false` or `first-frame` *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "addresses" (Codec.of_list Codec.of_string) it.addresses;
        Codec.given "arguments" (Codec.of_list Codec.of_string) it.arguments;
        Codec.given "burst" Codec.of_int it.burst;
        Codec.given "click" Codec.of_string it.click;
        Codec.given "config" Codec.of_string it.config;
        Codec.given "configuration" Codec.of_string it.configuration;
        Codec.given "core" Codec.of_int it.core;
        Codec.given "devices" (Codec.of_assoc Codec.of_string) it.devices;
        Codec.given "fallback" Codec.of_string it.fallback;
        Codec.given "gateways" (Codec.of_list Codec.of_string) it.gateways;
        Codec.given "idle" Codec.of_string it.idle;
        Codec.given "image" Codec.of_string it.image;
        Codec.given "instances" Fun.id it.instances;
        Codec.given "isolation" Codec.of_string it.isolation;
        Codec.given "mac" Codec.of_string it.mac;
        Codec.given "memory" Fun.id it.memory;
        Codec.some "name" Codec.of_string it.name;
        Codec.given "parameters" (Codec.of_assoc Codec.of_string) it.parameters;
        Codec.some "ports" (Codec.of_list Codec.of_string) it.ports;
        Codec.given "snapshots" Codec.of_bool it.snapshots;
        Codec.given "source" Codec.of_string it.source;
        Codec.given "start" Codec.of_string it.start;
      ]

  let make ?addresses ?arguments ?burst ?click ?config ?configuration ?core ?devices ?fallback ?gateways ?idle
           ?image ?instances ?isolation ?mac ?memory ~name ?parameters ~ports ?snapshots ?source ?start () =
    { addresses; arguments; burst; click; config; configuration; core; devices; fallback; gateways; idle;
      image; instances; isolation; mac; memory; name; parameters; ports; snapshots; source; start }
end

(** A guest to migrate. *)
module NewMigration = struct
  type t = {
    bandwidth : int option;
        (** Most bytes of memory that are copied in a second while the guest runs; without it, as many as
            possible. *)
    to_ : string;
        (** The control socket of another fabric of this host, or `ssh://\[USER\@\]HOST\[:PORT\]\[/FABRIC\]`. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "bandwidth" Codec.of_int it.bandwidth;
        Codec.some "to" Codec.of_string it.to_;
      ]

  let make ?bandwidth ~to_ () =
    { bandwidth; to_ }
end

(** A port to add: its name, and the keys of `\[port.NAME\]`, which depend on its kind. *)
module NewPort = struct
  type t = {
    address : string option;
    addresses : Yojson.Safe.t option;
    allow : Yojson.Safe.t option;
    allow_mac : Yojson.Safe.t option;
    burst_from : Yojson.Safe.t option;
    burst_to : Yojson.Safe.t option;
    carrier : Yojson.Safe.t option;
    checksum : Yojson.Safe.t option;
    doorbells : string option;
    dscp : string option;
    encapsulation : string option;
    file : string option;
    from : string option;
    gateway : string option;
    gateways : Yojson.Safe.t option;
    generic : Yojson.Safe.t option;
    group : string option;
    hold : string option;
    host : string option;
    interface : string option;
    isolated : Yojson.Safe.t option;
    keep : Yojson.Safe.t option;
    kind : string;
    learn_rate : Yojson.Safe.t option;
    link : Yojson.Safe.t option;
    local : string option;
    local_port : Yojson.Safe.t option;
    loop : Yojson.Safe.t option;
    mac : string option;
    memory : string option;
    mirror : Yojson.Safe.t option;
    mirror_direction : Yojson.Safe.t option;
    mirror_snap : Yojson.Safe.t option;
    mirror_switch : Yojson.Safe.t option;
    mirror_tag : Yojson.Safe.t option;
    mirror_vlans : Yojson.Safe.t option;
    mode : string option;
    model : string option;
    mtu : Yojson.Safe.t option;
    name : string;
        (** Its name. *)
    namespace : string option;
    native : Yojson.Safe.t option;
    notify : Yojson.Safe.t option;
    offloads : Yojson.Safe.t option;
    owner : string option;
    peer : string option;
    poll : string option;
    port : Yojson.Safe.t option;
    promiscuous : Yojson.Safe.t option;
    queues : Yojson.Safe.t option;
    rate : string option;
    rate_from : Yojson.Safe.t option;
    rate_to : Yojson.Safe.t option;
    reassembly : Yojson.Safe.t option;
    record : string option;
    role : string option;
    service_tag : Yojson.Safe.t option;
    size : string option;
    slot_size : string option;
    slots : Yojson.Safe.t option;
    socket : string option;
    source_ports : Yojson.Safe.t option;
    speed : string option;
    storm : Yojson.Safe.t option;
    switch : string option;
    tag : Yojson.Safe.t option;
    techniques : Yojson.Safe.t option;
    to_ : string option;
    trunks : Yojson.Safe.t option;
    ttl : Yojson.Safe.t option;
    vlan_protocol : Yojson.Safe.t option;
    vni : Yojson.Safe.t option;
    without : Yojson.Safe.t option;
  }

  let to_json it =
    Codec.record
      [
        Codec.given "address" Codec.of_string it.address;
        Codec.given "addresses" Fun.id it.addresses;
        Codec.given "allow" Fun.id it.allow;
        Codec.given "allow-mac" Fun.id it.allow_mac;
        Codec.given "burst-from" Fun.id it.burst_from;
        Codec.given "burst-to" Fun.id it.burst_to;
        Codec.given "carrier" Fun.id it.carrier;
        Codec.given "checksum" Fun.id it.checksum;
        Codec.given "doorbells" Codec.of_string it.doorbells;
        Codec.given "dscp" Codec.of_string it.dscp;
        Codec.given "encapsulation" Codec.of_string it.encapsulation;
        Codec.given "file" Codec.of_string it.file;
        Codec.given "from" Codec.of_string it.from;
        Codec.given "gateway" Codec.of_string it.gateway;
        Codec.given "gateways" Fun.id it.gateways;
        Codec.given "generic" Fun.id it.generic;
        Codec.given "group" Codec.of_string it.group;
        Codec.given "hold" Codec.of_string it.hold;
        Codec.given "host" Codec.of_string it.host;
        Codec.given "interface" Codec.of_string it.interface;
        Codec.given "isolated" Fun.id it.isolated;
        Codec.given "keep" Fun.id it.keep;
        Codec.some "kind" Codec.of_string it.kind;
        Codec.given "learn-rate" Fun.id it.learn_rate;
        Codec.given "link" Fun.id it.link;
        Codec.given "local" Codec.of_string it.local;
        Codec.given "local-port" Fun.id it.local_port;
        Codec.given "loop" Fun.id it.loop;
        Codec.given "mac" Codec.of_string it.mac;
        Codec.given "memory" Codec.of_string it.memory;
        Codec.given "mirror" Fun.id it.mirror;
        Codec.given "mirror-direction" Fun.id it.mirror_direction;
        Codec.given "mirror-snap" Fun.id it.mirror_snap;
        Codec.given "mirror-switch" Fun.id it.mirror_switch;
        Codec.given "mirror-tag" Fun.id it.mirror_tag;
        Codec.given "mirror-vlans" Fun.id it.mirror_vlans;
        Codec.given "mode" Codec.of_string it.mode;
        Codec.given "model" Codec.of_string it.model;
        Codec.given "mtu" Fun.id it.mtu;
        Codec.some "name" Codec.of_string it.name;
        Codec.given "namespace" Codec.of_string it.namespace;
        Codec.given "native" Fun.id it.native;
        Codec.given "notify" Fun.id it.notify;
        Codec.given "offloads" Fun.id it.offloads;
        Codec.given "owner" Codec.of_string it.owner;
        Codec.given "peer" Codec.of_string it.peer;
        Codec.given "poll" Codec.of_string it.poll;
        Codec.given "port" Fun.id it.port;
        Codec.given "promiscuous" Fun.id it.promiscuous;
        Codec.given "queues" Fun.id it.queues;
        Codec.given "rate" Codec.of_string it.rate;
        Codec.given "rate-from" Fun.id it.rate_from;
        Codec.given "rate-to" Fun.id it.rate_to;
        Codec.given "reassembly" Fun.id it.reassembly;
        Codec.given "record" Codec.of_string it.record;
        Codec.given "role" Codec.of_string it.role;
        Codec.given "service-tag" Fun.id it.service_tag;
        Codec.given "size" Codec.of_string it.size;
        Codec.given "slot-size" Codec.of_string it.slot_size;
        Codec.given "slots" Fun.id it.slots;
        Codec.given "socket" Codec.of_string it.socket;
        Codec.given "source-ports" Fun.id it.source_ports;
        Codec.given "speed" Codec.of_string it.speed;
        Codec.given "storm" Fun.id it.storm;
        Codec.given "switch" Codec.of_string it.switch;
        Codec.given "tag" Fun.id it.tag;
        Codec.given "techniques" Fun.id it.techniques;
        Codec.given "to" Codec.of_string it.to_;
        Codec.given "trunks" Fun.id it.trunks;
        Codec.given "ttl" Fun.id it.ttl;
        Codec.given "vlan-protocol" Fun.id it.vlan_protocol;
        Codec.given "vni" Fun.id it.vni;
        Codec.given "without" Fun.id it.without;
      ]

  let make ?address ?addresses ?allow ?allow_mac ?burst_from ?burst_to ?carrier ?checksum ?doorbells ?dscp
           ?encapsulation ?file ?from ?gateway ?gateways ?generic ?group ?hold ?host ?interface ?isolated
           ?keep ~kind ?learn_rate ?link ?local ?local_port ?loop ?mac ?memory ?mirror ?mirror_direction
           ?mirror_snap ?mirror_switch ?mirror_tag ?mirror_vlans ?mode ?model ?mtu ~name ?namespace ?native
           ?notify ?offloads ?owner ?peer ?poll ?port ?promiscuous ?queues ?rate ?rate_from ?rate_to
           ?reassembly ?record ?role ?service_tag ?size ?slot_size ?slots ?socket ?source_ports ?speed ?storm
           ?switch ?tag ?techniques ?to_ ?trunks ?ttl ?vlan_protocol ?vni ?without () =
    { address; addresses; allow; allow_mac; burst_from; burst_to; carrier; checksum; doorbells; dscp;
      encapsulation; file; from; gateway; gateways; generic; group; hold; host; interface; isolated; keep;
      kind; learn_rate; link; local; local_port; loop; mac; memory; mirror; mirror_direction; mirror_snap;
      mirror_switch; mirror_tag; mirror_vlans; mode; model; mtu; name; namespace; native; notify; offloads;
      owner; peer; poll; port; promiscuous; queues; rate; rate_from; rate_to; reassembly; record; role;
      service_tag; size; slot_size; slots; socket; source_ports; speed; storm; switch; tag; techniques; to_;
      trunks; ttl; vlan_protocol; vni; without }
end

(** A snapshot to take. *)
module NewSnapshot = struct
  type t = {
    name : string;
        (** Its name. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "name" Codec.of_string it.name;
      ]

  let make ~name () =
    { name }
end

(** A switch to add: its name, and the keys of `\[switch.NAME\]`. *)
module NewSwitch = struct
  type t = {
    ageing : string option;
    entries : Yojson.Safe.t option;
    flows : string option;
    forward_reserved : Yojson.Safe.t option;
    lookup : string option;
    members : Yojson.Safe.t option;
    multicast_fast_leave : Yojson.Safe.t option;
    multicast_snooping : Yojson.Safe.t option;
    name : string;
        (** Its name. *)
    open_ : string option;
    open_group : string option;
    open_limit : Yojson.Safe.t option;
    refuse_moves : Yojson.Safe.t option;
    rules : string option;
    static : Yojson.Safe.t option;
    uplink : string option;
  }

  let to_json it =
    Codec.record
      [
        Codec.given "ageing" Codec.of_string it.ageing;
        Codec.given "entries" Fun.id it.entries;
        Codec.given "flows" Codec.of_string it.flows;
        Codec.given "forward-reserved" Fun.id it.forward_reserved;
        Codec.given "lookup" Codec.of_string it.lookup;
        Codec.given "members" Fun.id it.members;
        Codec.given "multicast-fast-leave" Fun.id it.multicast_fast_leave;
        Codec.given "multicast-snooping" Fun.id it.multicast_snooping;
        Codec.some "name" Codec.of_string it.name;
        Codec.given "open" Codec.of_string it.open_;
        Codec.given "open-group" Codec.of_string it.open_group;
        Codec.given "open-limit" Fun.id it.open_limit;
        Codec.given "refuse-moves" Fun.id it.refuse_moves;
        Codec.given "rules" Codec.of_string it.rules;
        Codec.given "static" Fun.id it.static;
        Codec.given "uplink" Codec.of_string it.uplink;
      ]

  let make ?ageing ?entries ?flows ?forward_reserved ?lookup ?members ?multicast_fast_leave
           ?multicast_snooping ~name ?open_ ?open_group ?open_limit ?refuse_moves ?rules ?static ?uplink () =
    { ageing; entries; flows; forward_reserved; lookup; members; multicast_fast_leave; multicast_snooping;
      name; open_; open_group; open_limit; refuse_moves; rules; static; uplink }
end

(** What a token may be used for. Each role has the rights of those before it. *)
module Role = struct
  type t =
    | Read
    | Operate
    | Admin
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "read" -> Read
    | "operate" -> Operate
    | "admin" -> Admin
    | other -> Other other

  let to_json = function
    | Read -> `String "read"
    | Operate -> `String "operate"
    | Admin -> `String "admin"
    | Other other -> `String other
end

(** A client to add. *)
module NewToken = struct
  type t = {
    certificate : string option;
        (** The hash by SHA-256 of its certificate, 64 hexadecimal digits; without it a token is made. *)
    name : string;
        (** Its name. *)
    role : Role.t;
        (** What it may do. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "certificate" Codec.of_string it.certificate;
        Codec.some "name" Codec.of_string it.name;
        Codec.some "role" Role.to_json it.role;
      ]

  let make ?certificate ~name ~role () =
    { certificate; name; role }
end

(** A frame to trace. *)
module NewTrace = struct
  type t = {
    checksum_offload : bool option;
        (** Whether its sender leaves the checksum of TCP or UDP to the host. *)
    frame : string;
        (** The frame: its fields in the words of `ovs-ofctl`, such as `tcp,nw_dst=10.0.0.2,tp_dst=80`, or its
            bytes in hexadecimal. *)
    gso_size : int option;
        (** Bytes of payload of a segment, if its sender leaves segmentation to the host. *)
    inject : bool option;
        (** Whether the frame is sent then, as if the port's peer had sent it. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "checksum_offload" Codec.of_bool it.checksum_offload;
        Codec.some "frame" Codec.of_string it.frame;
        Codec.given "gso_size" Codec.of_int it.gso_size;
        Codec.given "inject" Codec.of_bool it.inject;
      ]

  let make ?checksum_offload ~frame ?gso_size ?inject () =
    { checksum_offload; frame; gso_size; inject }
end

(** How strictly memory is bound to NUMA nodes. *)
module NumaMode = struct
  type t =
    | Strict
    | Interleave
    | Preferred
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "strict" -> Strict
    | "interleave" -> Interleave
    | "preferred" -> Preferred
    | other -> Other other

  let to_json = function
    | Strict -> `String "strict"
    | Interleave -> `String "interleave"
    | Preferred -> `String "preferred"
    | Other other -> `String other
end

(** What a policy trades for speed under many requests. *)
module Optimise = struct
  type t =
    | None
    | Speed
    | Overbooking
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "none" -> None
    | "speed" -> Speed
    | "overbooking" -> Overbooking
    | other -> Other other
end

(** The page for browsers. *)
module PageView = struct
  type t = {
    url : string;
        (** Its address. *)
  }

  let of_json json =
    {
      url = Codec.field Codec.string "url" json;
    }
end

(** How a VM's CPUs are bound. *)
module Pinning = struct
  type t =
    | None
    | Manual
    | Resize_and_pin_numa
    | Dedicated
    | Isolate_threads
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "none" -> None
    | "manual" -> Manual
    | "resize_and_pin_numa" -> Resize_and_pin_numa
    | "dedicated" -> Dedicated
    | "isolate_threads" -> Isolate_threads
    | other -> Other other

  let to_json = function
    | None -> `String "none"
    | Manual -> `String "manual"
    | Resize_and_pin_numa -> `String "resize_and_pin_numa"
    | Dedicated -> `String "dedicated"
    | Isolate_threads -> `String "isolate_threads"
    | Other other -> `String other
end

(** Kind of a VM. *)
module VmKind = struct
  type t =
    | Vm
    | Function
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "vm" -> Vm
    | "function" -> Function
    | other -> Other other

  let to_json = function
    | Vm -> `String "vm"
    | Function -> `String "function"
    | Other other -> `String other
end

(** A network card of a VM. *)
module VmNic = struct
  type t = {
    network : string option;
        (** The network; empty for none. *)
    passthrough : bool option;
        (** Whether it needs an SR-IOV virtual function. *)
  }

  let of_json json =
    {
      network = Codec.optional Codec.string "network" json;
      passthrough = Codec.optional Codec.bool "passthrough" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.given "network" Codec.of_string it.network;
        Codec.given "passthrough" Codec.of_bool it.passthrough;
      ]

  let make ?network ?passthrough () =
    { network; passthrough }
end

(** A NUMA node that a VM sees. *)
module VmNumaNode = struct
  type t = {
    cpus : int option;
        (** Its CPUs. *)
    host_nodes : int list option;
        (** Host nodes that it is pinned to; none for any. *)
    memory_mb : int option;
        (** Its memory. *)
    mode : NumaMode.t option;
        (** How strictly the memory is bound. *)
  }

  let of_json json =
    {
      cpus = Codec.optional Codec.int "cpus" json;
      host_nodes = Codec.optional (Codec.list Codec.int) "host_nodes" json;
      memory_mb = Codec.optional Codec.int "memory_mb" json;
      mode = Codec.optional NumaMode.of_json "mode" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.given "cpus" Codec.of_int it.cpus;
        Codec.given "host_nodes" (Codec.of_list Codec.of_int) it.host_nodes;
        Codec.given "memory_mb" Codec.of_int it.memory_mb;
        Codec.given "mode" NumaMode.to_json it.mode;
      ]

  let make ?cpus ?host_nodes ?memory_mb ?mode () =
    { cpus; host_nodes; memory_mb; mode }
end

(** Traffic of a VM or function. *)
module PortNeed = struct
  type t = {
    mbps : int option;
        (** Megabits a second. *)
    network : string option;
        (** The network; empty for any port. *)
    pps : int option;
        (** Packets a second. *)
  }

  let of_json json =
    {
      mbps = Codec.optional Codec.int "mbps" json;
      network = Codec.optional Codec.string "network" json;
      pps = Codec.optional Codec.int "pps" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.given "mbps" Codec.of_int it.mbps;
        Codec.given "network" Codec.of_string it.network;
        Codec.given "pps" Codec.of_int it.pps;
      ]

  let make ?mbps ?network ?pps () =
    { mbps; network; pps }
end

(** Status of a VM. *)
module VmStatus = struct
  type t =
    | Down
    | Up
    | Paused
    | Migrating
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "down" -> Down
    | "up" -> Up
    | "paused" -> Paused
    | "migrating" -> Migrating
    | other -> Other other

  let to_json = function
    | Down -> `String "down"
    | Up -> `String "up"
    | Paused -> `String "paused"
    | Migrating -> `String "migrating"
    | Other other -> `String other
end

(** A virtual machine or a function. *)
module Vm = struct
  type t = {
    aggregates : string list option;
        (** Aggregates its host must belong to. *)
    chain : string option;
        (** Its chain of functions. *)
    chain_index : int option;
        (** Place in the chain, from 0. *)
    cluster : string option;
        (** Its cluster. *)
    cores : int option;
        (** Cores a socket. *)
    cpu_flags : string list option;
        (** CPU flags that it needs; none for the cluster's. *)
    cpu_passthrough : bool option;
        (** Whether it has CPU passthrough. *)
    cpu_percent : int option;
        (** Measured CPU usage in percent of its virtual CPUs. *)
    devices : string list option;
        (** Host devices assigned to it. *)
    different_host : string list option;
        (** VMs it must not share a host with (Nova's hint `different_host`). *)
    ha : bool option;
        (** Whether it is highly available. *)
    high_performance : bool option;
        (** Whether it is a high-performance VM. *)
    hooks : string list option;
        (** Hooks it needs. *)
    host : string option;
        (** The host it runs on. *)
    hosted_engine : bool option;
        (** Whether it is oVirt's self-hosted engine. *)
    hosts : string list option;
        (** Hosts it is pinned to, or prefers. *)
    huge_page_kb : int option;
        (** Size in kB of the huge pages for its memory, if it uses them. *)
    kind : VmKind.t option;
        (** Its kind. *)
    labels : string list option;
        (** Labels, for affinity. *)
    last_host : string option;
        (** The host it last ran on. *)
    lease : string option;
        (** Storage domain that holds its lease. *)
    machine : string option;
        (** Its own machine type. *)
    mdevs : string list option;
        (** Types of mediated devices it needs. *)
    memory_mb : int option;
        (** Memory. *)
    migration : Migration.t option;
        (** Whether it may be moved. *)
    milli_cpus : int option;
        (** Its share of a host's CPUs, in thousandths of one, if different from its virtual CPUs. *)
    moved_at : int option;
        (** When it last moved. *)
    name : string option;
        (** Its name. *)
    nics : VmNic.t list option;
        (** Network cards. *)
    numa : VmNumaNode.t list option;
        (** Its virtual NUMA nodes. *)
    numa_local : bool option;
        (** Whether its CPUs, memory and port must be on one NUMA node. *)
    pinning : Pinning.t option;
        (** How its CPUs are bound. *)
    pins : int list option;
        (** Host CPUs that manual pinning names. *)
    policy : string option;
        (** Policy instead of its cluster's. *)
    ports : PortNeed.t list option;
        (** Its traffic. *)
    properties : (string * string) list option;
        (** Custom properties over its policy's. *)
    same_host : string list option;
        (** VMs it must share a host with (Nova's hint `same_host`). *)
    sockets : int option;
        (** Virtual sockets. *)
    status : VmStatus.t option;
        (** Its status. *)
    threads : int option;
        (** Threads a core. *)
    use_tsc : bool option;
        (** Whether its time stamp counter's frequency must never change. *)
    version : string option;
        (** Its own compatibility version. *)
  }

  let of_json json =
    {
      aggregates = Codec.optional (Codec.list Codec.string) "aggregates" json;
      chain = Codec.optional Codec.string "chain" json;
      chain_index = Codec.optional Codec.int "chain_index" json;
      cluster = Codec.optional Codec.string "cluster" json;
      cores = Codec.optional Codec.int "cores" json;
      cpu_flags = Codec.optional (Codec.list Codec.string) "cpu_flags" json;
      cpu_passthrough = Codec.optional Codec.bool "cpu_passthrough" json;
      cpu_percent = Codec.optional Codec.int "cpu_percent" json;
      devices = Codec.optional (Codec.list Codec.string) "devices" json;
      different_host = Codec.optional (Codec.list Codec.string) "different_host" json;
      ha = Codec.optional Codec.bool "ha" json;
      high_performance = Codec.optional Codec.bool "high_performance" json;
      hooks = Codec.optional (Codec.list Codec.string) "hooks" json;
      host = Codec.optional Codec.string "host" json;
      hosted_engine = Codec.optional Codec.bool "hosted_engine" json;
      hosts = Codec.optional (Codec.list Codec.string) "hosts" json;
      huge_page_kb = Codec.optional Codec.int "huge_page_kb" json;
      kind = Codec.optional VmKind.of_json "kind" json;
      labels = Codec.optional (Codec.list Codec.string) "labels" json;
      last_host = Codec.optional Codec.string "last_host" json;
      lease = Codec.optional Codec.string "lease" json;
      machine = Codec.optional Codec.string "machine" json;
      mdevs = Codec.optional (Codec.list Codec.string) "mdevs" json;
      memory_mb = Codec.optional Codec.int "memory_mb" json;
      migration = Codec.optional Migration.of_json "migration" json;
      milli_cpus = Codec.optional Codec.int "milli_cpus" json;
      moved_at = Codec.optional Codec.int "moved_at" json;
      name = Codec.optional Codec.string "name" json;
      nics = Codec.optional (Codec.list VmNic.of_json) "nics" json;
      numa = Codec.optional (Codec.list VmNumaNode.of_json) "numa" json;
      numa_local = Codec.optional Codec.bool "numa_local" json;
      pinning = Codec.optional Pinning.of_json "pinning" json;
      pins = Codec.optional (Codec.list Codec.int) "pins" json;
      policy = Codec.optional Codec.string "policy" json;
      ports = Codec.optional (Codec.list PortNeed.of_json) "ports" json;
      properties = Codec.optional (Codec.assoc Codec.string) "properties" json;
      same_host = Codec.optional (Codec.list Codec.string) "same_host" json;
      sockets = Codec.optional Codec.int "sockets" json;
      status = Codec.optional VmStatus.of_json "status" json;
      threads = Codec.optional Codec.int "threads" json;
      use_tsc = Codec.optional Codec.bool "use_tsc" json;
      version = Codec.optional Codec.string "version" json;
    }

  let to_json it =
    Codec.record
      [
        Codec.given "aggregates" (Codec.of_list Codec.of_string) it.aggregates;
        Codec.given "chain" Codec.of_string it.chain;
        Codec.given "chain_index" Codec.of_int it.chain_index;
        Codec.given "cluster" Codec.of_string it.cluster;
        Codec.given "cores" Codec.of_int it.cores;
        Codec.given "cpu_flags" (Codec.of_list Codec.of_string) it.cpu_flags;
        Codec.given "cpu_passthrough" Codec.of_bool it.cpu_passthrough;
        Codec.given "cpu_percent" Codec.of_int it.cpu_percent;
        Codec.given "devices" (Codec.of_list Codec.of_string) it.devices;
        Codec.given "different_host" (Codec.of_list Codec.of_string) it.different_host;
        Codec.given "ha" Codec.of_bool it.ha;
        Codec.given "high_performance" Codec.of_bool it.high_performance;
        Codec.given "hooks" (Codec.of_list Codec.of_string) it.hooks;
        Codec.given "host" Codec.of_string it.host;
        Codec.given "hosted_engine" Codec.of_bool it.hosted_engine;
        Codec.given "hosts" (Codec.of_list Codec.of_string) it.hosts;
        Codec.given "huge_page_kb" Codec.of_int it.huge_page_kb;
        Codec.given "kind" VmKind.to_json it.kind;
        Codec.given "labels" (Codec.of_list Codec.of_string) it.labels;
        Codec.given "last_host" Codec.of_string it.last_host;
        Codec.given "lease" Codec.of_string it.lease;
        Codec.given "machine" Codec.of_string it.machine;
        Codec.given "mdevs" (Codec.of_list Codec.of_string) it.mdevs;
        Codec.given "memory_mb" Codec.of_int it.memory_mb;
        Codec.given "migration" Migration.to_json it.migration;
        Codec.given "milli_cpus" Codec.of_int it.milli_cpus;
        Codec.given "moved_at" Codec.of_int it.moved_at;
        Codec.given "name" Codec.of_string it.name;
        Codec.given "nics" (Codec.of_list VmNic.to_json) it.nics;
        Codec.given "numa" (Codec.of_list VmNumaNode.to_json) it.numa;
        Codec.given "numa_local" Codec.of_bool it.numa_local;
        Codec.given "pinning" Pinning.to_json it.pinning;
        Codec.given "pins" (Codec.of_list Codec.of_int) it.pins;
        Codec.given "policy" Codec.of_string it.policy;
        Codec.given "ports" (Codec.of_list PortNeed.to_json) it.ports;
        Codec.given "properties" (Codec.of_assoc Codec.of_string) it.properties;
        Codec.given "same_host" (Codec.of_list Codec.of_string) it.same_host;
        Codec.given "sockets" Codec.of_int it.sockets;
        Codec.given "status" VmStatus.to_json it.status;
        Codec.given "threads" Codec.of_int it.threads;
        Codec.given "use_tsc" Codec.of_bool it.use_tsc;
        Codec.given "version" Codec.of_string it.version;
      ]

  let make ?aggregates ?chain ?chain_index ?cluster ?cores ?cpu_flags ?cpu_passthrough ?cpu_percent ?devices
           ?different_host ?ha ?high_performance ?hooks ?host ?hosted_engine ?hosts ?huge_page_kb ?kind
           ?labels ?last_host ?lease ?machine ?mdevs ?memory_mb ?migration ?milli_cpus ?moved_at ?name ?nics
           ?numa ?numa_local ?pinning ?pins ?policy ?ports ?properties ?same_host ?sockets ?status ?threads
           ?use_tsc ?version () =
    { aggregates; chain; chain_index; cluster; cores; cpu_flags; cpu_passthrough; cpu_percent; devices;
      different_host; ha; high_performance; hooks; host; hosted_engine; hosts; huge_page_kb; kind; labels;
      last_host; lease; machine; mdevs; memory_mb; migration; milli_cpus; moved_at; name; nics; numa;
      numa_local; pinning; pins; policy; ports; properties; same_host; sockets; status; threads; use_tsc;
      version }
end

(** VMs to place, all or none. *)
module PlaceRequest = struct
  type t = {
    new_ : Vm.t list option;
        (** Unknown VMs: added first, or only tried. *)
    only : string list option;
        (** If not empty, only these hosts may be chosen. *)
    policy : string option;
        (** Policy to use instead of their own. *)
    seed : int option;
        (** Seed that breaks ties; chosen at random if unset. *)
    stay : bool option;
        (** Whether the host a VM runs on may be chosen. *)
    vms : string list option;
        (** Names of known VMs. *)
    without : string list option;
        (** Hosts that must not be chosen. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.given "new" (Codec.of_list Vm.to_json) it.new_;
        Codec.given "only" (Codec.of_list Codec.of_string) it.only;
        Codec.given "policy" Codec.of_string it.policy;
        Codec.given "seed" Codec.of_int it.seed;
        Codec.given "stay" Codec.of_bool it.stay;
        Codec.given "vms" (Codec.of_list Codec.of_string) it.vms;
        Codec.given "without" (Codec.of_list Codec.of_string) it.without;
      ]

  let make ?new_ ?only ?policy ?seed ?stay ?vms ?without () =
    { new_; only; policy; seed; stay; vms; without }
end

(** Sources of external units: folders and addresses. *)
module PluginsView = struct
  type t = {
    attached : string list;
        (** Those attached by an operator. *)
    file : string list;
        (** Those of the fabric's file. *)
    problems : string list;
        (** Errors: files that fail to load, hosts that fail to start. *)
  }

  let of_json json =
    {
      attached = Codec.field (Codec.list Codec.string) "attached" json;
      file = Codec.field (Codec.list Codec.string) "file" json;
      problems = Codec.field (Codec.list Codec.string) "problems" json;
    }
end

(** How weights become a choice. *)
module Selector = struct
  type t =
    | Rank
    | Scaled_sum
    | Lowest_sum
    | Other of string  (** One that a later version has. *)

  let of_json json =
    match Codec.string json with
    | "rank" -> Rank
    | "scaled_sum" -> Scaled_sum
    | "lowest_sum" -> Lowest_sum
    | other -> Other other
end

(** A weight in a policy. *)
module WeightUse = struct
  type t = {
    factor : int;
        (** Its factor. *)
    name : string;
        (** Its name. *)
    required : bool option;
        (** Whether a placement fails if this external unit fails. *)
  }

  let of_json json =
    {
      factor = Codec.field Codec.int "factor" json;
      name = Codec.field Codec.string "name" json;
      required = Codec.optional Codec.bool "required" json;
    }
end

(** A policy. *)
module Policy = struct
  type t = {
    balancer : string option;
        (** Its balancer. *)
    filters : FilterUse.t list option;
        (** Its filters. *)
    name : string option;
        (** Its name. *)
    optimise : Optimise.t option;
        (** What the policy trades for speed under many requests. *)
    properties : (string * string) list option;
        (** Custom properties. *)
    selector : Selector.t option;
        (** How weights become a choice. *)
    weights : WeightUse.t list option;
        (** Its weights. *)
  }

  let of_json json =
    {
      balancer = Codec.optional Codec.string "balancer" json;
      filters = Codec.optional (Codec.list FilterUse.of_json) "filters" json;
      name = Codec.optional Codec.string "name" json;
      optimise = Codec.optional Optimise.of_json "optimise" json;
      properties = Codec.optional (Codec.assoc Codec.string) "properties" json;
      selector = Codec.optional Selector.of_json "selector" json;
      weights = Codec.optional (Codec.list WeightUse.of_json) "weights" json;
    }
end

(** New values of keys of a port; null for the default. Other keys stay. *)
module PortChange = struct
  type t = {
    allow : Yojson.Safe.t option;
    allow_mac : Yojson.Safe.t option;
    burst_from : Yojson.Safe.t option;
    burst_to : Yojson.Safe.t option;
    isolated : Yojson.Safe.t option;
    learn_rate : Yojson.Safe.t option;
    mirror : Yojson.Safe.t option;
    mirror_direction : Yojson.Safe.t option;
    mirror_snap : Yojson.Safe.t option;
    mirror_switch : Yojson.Safe.t option;
    mirror_tag : Yojson.Safe.t option;
    mirror_vlans : Yojson.Safe.t option;
    native : Yojson.Safe.t option;
    rate_from : Yojson.Safe.t option;
    rate_to : Yojson.Safe.t option;
    reassembly : Yojson.Safe.t option;
    service_tag : Yojson.Safe.t option;
    storm : Yojson.Safe.t option;
    tag : Yojson.Safe.t option;
    trunks : Yojson.Safe.t option;
    vlan_protocol : Yojson.Safe.t option;
  }

  let to_json it =
    Codec.record
      [
        Codec.given "allow" Fun.id it.allow;
        Codec.given "allow-mac" Fun.id it.allow_mac;
        Codec.given "burst-from" Fun.id it.burst_from;
        Codec.given "burst-to" Fun.id it.burst_to;
        Codec.given "isolated" Fun.id it.isolated;
        Codec.given "learn-rate" Fun.id it.learn_rate;
        Codec.given "mirror" Fun.id it.mirror;
        Codec.given "mirror-direction" Fun.id it.mirror_direction;
        Codec.given "mirror-snap" Fun.id it.mirror_snap;
        Codec.given "mirror-switch" Fun.id it.mirror_switch;
        Codec.given "mirror-tag" Fun.id it.mirror_tag;
        Codec.given "mirror-vlans" Fun.id it.mirror_vlans;
        Codec.given "native" Fun.id it.native;
        Codec.given "rate-from" Fun.id it.rate_from;
        Codec.given "rate-to" Fun.id it.rate_to;
        Codec.given "reassembly" Fun.id it.reassembly;
        Codec.given "service-tag" Fun.id it.service_tag;
        Codec.given "storm" Fun.id it.storm;
        Codec.given "tag" Fun.id it.tag;
        Codec.given "trunks" Fun.id it.trunks;
        Codec.given "vlan-protocol" Fun.id it.vlan_protocol;
      ]

  let make ?allow ?allow_mac ?burst_from ?burst_to ?isolated ?learn_rate ?mirror ?mirror_direction
           ?mirror_snap ?mirror_switch ?mirror_tag ?mirror_vlans ?native ?rate_from ?rate_to ?reassembly
           ?service_tag ?storm ?tag ?trunks ?vlan_protocol () =
    { allow; allow_mac; burst_from; burst_to; isolated; learn_rate; mirror; mirror_direction; mirror_snap;
      mirror_switch; mirror_tag; mirror_vlans; native; rate_from; rate_to; reassembly; service_tag; storm;
      tag; trunks; vlan_protocol }
end

(** Counters of a port. *)
module PortStats = struct
  type t = {
    name : string;
        (** Its name. *)
    queues : Counts.t list;
        (** By queue. *)
    total : Counts.t;
        (** Sum over its queues. *)
  }

  let of_json json =
    {
      name = Codec.field Codec.string "name" json;
      queues = Codec.field (Codec.list Counts.of_json) "queues" json;
      total = Codec.field Counts.of_json "total" json;
    }
end

(** A port. *)
module PortView = struct
  type t = {
    detail : string;
        (** What was negotiated with the peer. *)
    kind : string;
        (** Its kind. *)
    name : string;
        (** Its name. *)
    peer : string;
        (** Where its peer connects: a socket's path, an interface's name. *)
    policy : (string * string) list option;
        (** What its switch lets it send and receive: the keys that `port set` changes, in the syntax of the
            file. *)
    reason : string;
        (** Why it last lost its peer, or has none. *)
    state : string;
        (** `waiting` (no peer), `attached` (a peer, not ready yet) or `up`. *)
    to_ : string;
        (** What it is connected to: `switch main`, `patch b`; empty for a pipe. *)
    worker : string;
        (** The worker of its first queue; empty without one. *)
  }

  let of_json json =
    {
      detail = Codec.field Codec.string "detail" json;
      kind = Codec.field Codec.string "kind" json;
      name = Codec.field Codec.string "name" json;
      peer = Codec.field Codec.string "peer" json;
      policy = Codec.optional (Codec.assoc Codec.string) "policy" json;
      reason = Codec.field Codec.string "reason" json;
      state = Codec.field Codec.string "state" json;
      to_ = Codec.field Codec.string "to" json;
      worker = Codec.field Codec.string "worker" json;
    }
end

(** What a process has used. *)
module ProcessView = struct
  type t = {
    cpu : int;
        (** Nanoseconds of processor time since its start, in steps of the kernel's clock ticks. *)
    kind : string;
        (** `control`, `data`, a guest's kind, or a function's isolation. *)
    memory : int;
        (** Bytes of memory; of pages shared with other processes, its part. *)
    name : string;
        (** Name of the guest or function; or `control`, or `data`. *)
    pid : int;
        (** Process ID; 0 if it has no process of its own, or does not run: then it uses nothing of its own. *)
    ports : string list;
        (** Ports of the guest or function. *)
  }

  let of_json json =
    {
      cpu = Codec.field Codec.int "cpu" json;
      kind = Codec.field Codec.string "kind" json;
      memory = Codec.field Codec.int "memory" json;
      name = Codec.field Codec.string "name" json;
      pid = Codec.field Codec.int "pid" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
    }
end

(** A stage of bursts. Ticks, bursts and frames are of those turns that were measured, time is of all. *)
module StageView = struct
  type t = {
    bursts : int;
        (** Bursts; of `notify`, signals. *)
    frames : int;
        (** Frames of these bursts. *)
    name : string;
        (** Its name. *)
    ticks : int;
        (** Ticks of the processor's clock. *)
    time : int;
        (** Nanoseconds. *)
  }

  let of_json json =
    {
      bursts = Codec.field Codec.int "bursts" json;
      frames = Codec.field Codec.int "frames" json;
      name = Codec.field Codec.string "name" json;
      ticks = Codec.field Codec.int "ticks" json;
      time = Codec.field Codec.int "time" json;
    }
end

(** Where a worker's time went, in nanoseconds. *)
module WorkerProfileView = struct
  type t = {
    functions : int;
        (** In functions. *)
    idle : int;
        (** Polling without a frame. *)
    name : string;
        (** Its name. *)
    slept : int;
        (** Asleep. *)
    stages : StageView.t list;
        (** The stages of bursts. *)
  }

  let of_json json =
    {
      functions = Codec.field Codec.int "functions" json;
      idle = Codec.field Codec.int "idle" json;
      name = Codec.field Codec.string "name" json;
      slept = Codec.field Codec.int "slept" json;
      stages = Codec.field (Codec.list StageView.of_json) "stages" json;
    }
end

(** Where the time of workers and functions went during a sample. *)
module ProfileView = struct
  type t = {
    functions : FunctionProfileView.t list;
        (** Functions that run on a worker, and those whose elements were asked for. *)
    nanoseconds : int;
        (** Length of the sample in nanoseconds. *)
    workers : WorkerProfileView.t list;
        (** Each worker. Its times add up to the sample. *)
  }

  let of_json json =
    {
      functions = Codec.field (Codec.list FunctionProfileView.of_json) "functions" json;
      nanoseconds = Codec.field Codec.int "nanoseconds" json;
      workers = Codec.field (Codec.list WorkerProfileView.of_json) "workers" json;
    }
end

(** An unmodified program with a network of its own. *)
module ProgramView = struct
  type t = {
    addresses : string list;
        (** Its addresses, each with the length of its prefix. *)
    command : string list;
        (** Its file and its arguments. *)
    name : string;
        (** Its name. *)
    output : string;
        (** The file with its output. *)
    pid : int;
        (** Process ID of what runs it; 0 if it does not run. *)
    port : string;
        (** Its port. *)
    reason : string;
        (** How it ended last, if it does not run. *)
    restart : string;
        (** When it is started again: `never`, `on-failure` or `always`. *)
    restarts : int;
        (** How often it was started again by itself. *)
    stack : string;
        (** Whose TCP serves it: `native` or `kernel`. *)
    state : string;
        (** `running`; `stopping`; `stopped`; `waiting`, to be started again; `ended`, by itself. *)
    user : string;
        (** Its user, if it has one of its own. *)
  }

  let of_json json =
    {
      addresses = Codec.field (Codec.list Codec.string) "addresses" json;
      command = Codec.field (Codec.list Codec.string) "command" json;
      name = Codec.field Codec.string "name" json;
      output = Codec.field Codec.string "output" json;
      pid = Codec.field Codec.int "pid" json;
      port = Codec.field Codec.string "port" json;
      reason = Codec.field Codec.string "reason" json;
      restart = Codec.field Codec.string "restart" json;
      restarts = Codec.field Codec.int "restarts" json;
      stack = Codec.field Codec.string "stack" json;
      state = Codec.field Codec.string "state" json;
      user = Codec.field Codec.string "user" json;
    }
end

(** A custom property. *)
module PropertyView = struct
  type t = {
    default : string;
        (** Default value. *)
    description : string;
        (** Its description. *)
    name : string;
        (** Its name. *)
    regex : string;
        (** Regular expression that the value must match. *)
  }

  let of_json json =
    {
      default = Codec.field Codec.string "default" json;
      description = Codec.field Codec.string "description" json;
      name = Codec.field Codec.string "name" json;
      regex = Codec.field Codec.string "regex" json;
    }
end

(** A revision of the store. *)
module RevisionView = struct
  type t = {
    revision : int;
        (** The revision. *)
  }

  let of_json json =
    {
      revision = Codec.field Codec.int "revision" json;
    }
end

(** The file that describes what runs. *)
module SavedFabric = struct
  type t = {
    differences : string list;
        (** What the text can't describe, as the changes that lead from it to what runs; empty if it describes
            everything. *)
    file : string;
        (** The path of the file that described the fabric last, to whose folder relative paths in the text are
            relative. *)
    text : string;
        (** Its text, with what requests have changed since then. *)
  }

  let of_json json =
    {
      differences = Codec.field (Codec.list Codec.string) "differences" json;
      file = Codec.field Codec.string "file" json;
      text = Codec.field Codec.string "text" json;
    }
end

(** A snapshot of a function in a VM. *)
module SnapshotView = struct
  type t = {
    bytes : int;
        (** Bytes of memory that it keeps; clones share them. *)
    function_ : string;
        (** The function that it was taken of. *)
    name : string;
        (** Its name. *)
    ports : string list;
        (** The function's ports. A clone needs as many. *)
  }

  let of_json json =
    {
      bytes = Codec.field Codec.int "bytes" json;
      function_ = Codec.field Codec.string "function" json;
      name = Codec.field Codec.string "name" json;
      ports = Codec.field (Codec.list Codec.string) "ports" json;
    }
end

(** Counters of every port at one moment. *)
module StatsView = struct
  type t = {
    at : int;
        (** The time, in nanoseconds of the host's monotonic clock. *)
    ports : PortStats.t list;
        (** By port, in the order of the file. *)
  }

  let of_json json =
    {
      at = Codec.field Codec.int "at" json;
      ports = Codec.field (Codec.list PortStats.of_json) "ports" json;
    }
end

(** A host's status. *)
module StatusView = struct
  type t = {
    status : HostStatus.t;
        (** The status. *)
  }

  let of_json json =
    {
      status = Codec.field HostStatus.of_json "status" json;
    }
end

(** Contents of a store. *)
module Summary = struct
  type t = {
    objects : (string * int) list;
        (** Number of objects by kind, such as `host` and `decision`. *)
    revision : U64.t;
        (** Its revision. *)
  }

  let of_json json =
    {
      objects = Codec.field (Codec.assoc Codec.int) "objects" json;
      revision = Codec.field U64.of_json "revision" json;
    }
end

(** The store. *)
module StoreView = struct
  type t = {
    full : string option;
        (** Why it can't be written; `None` if it can. *)
    holds : Summary.t;
        (** Its contents. *)
    path : string;
        (** Path of its file; the log is in the same folder. *)
  }

  let of_json json =
    {
      full = Codec.optional Codec.string "full" json;
      holds = Codec.field Summary.of_json "holds" json;
      path = Codec.field Codec.string "path" json;
    }
end

(** An address that a switch knows. *)
module TableEntryView = struct
  type t = {
    age : int option;
        (** Seconds since it last sent; none for static entries. *)
    mac : string;
        (** The address. *)
    port : string;
        (** The port it is behind. *)
    vlan : int option;
        (** The number of its VLAN, that of the outer tag; 0 without a tag. *)
  }

  let of_json json =
    {
      age = Codec.optional Codec.int "age" json;
      mac = Codec.field Codec.string "mac" json;
      port = Codec.field Codec.string "port" json;
      vlan = Codec.optional Codec.int "vlan" json;
    }
end

(** Addresses that a switch knows. *)
module TableView = struct
  type t = {
    entries : TableEntryView.t list;
        (** Its entries. *)
    switch : string;
        (** The switch. *)
  }

  let of_json json =
    {
      entries = Codec.field (Codec.list TableEntryView.of_json) "entries" json;
      switch = Codec.field Codec.string "switch" json;
    }
end

(** A client of the API at its TCP address. *)
module TokenView = struct
  type t = {
    certificate : string option;
        (** The hash by SHA-256 of its certificate, if that is what it proves itself by. *)
    name : string;
        (** Its name, which the audit log has. *)
    role : Role.t;
        (** What it may do. *)
  }

  let of_json json =
    {
      certificate = Codec.optional Codec.string "certificate" json;
      name = Codec.field Codec.string "name" json;
      role = Codec.field Role.of_json "role" json;
    }
end

(** What would become of a frame. *)
module TraceView = struct
  type t = {
    changed : bool;
        (** Whether its port would have done something else with the frame when it was sent than what the first
            hop says: the fabric changed meanwhile. *)
    frame : string;
        (** The frame, in hexadecimal. *)
    hops : HopView.t list;
        (** Where it, and what is made of it, enters the fabric: first at its port, then behind each function or
            link that it passes. *)
    omitted : int;
        (** Number of frames that were not followed, since there are too many. *)
    port : string;
        (** The port that the frame enters. *)
    sent : bool option;
        (** Whether the frame was sent, if that was requested. A frame for which there is no room is not sent.
            *)
  }

  let of_json json =
    {
      changed = Codec.field Codec.bool "changed" json;
      frame = Codec.field Codec.string "frame" json;
      hops = Codec.field (Codec.list HopView.of_json) "hops" json;
      omitted = Codec.field Codec.int "omitted" json;
      port = Codec.field Codec.string "port" json;
      sent = Codec.optional Codec.bool "sent" json;
    }
end

(** A unit that policies choose from. *)
module UnitView = struct
  type t = {
    description : string;
        (** Its description. *)
    external_ : bool;
        (** Whether it is external. *)
    kind : string;
        (** `mandatory` (a filter of every policy), `filter`, `weight` or `balancer`. *)
    name : string;
        (** Its name. *)
    properties : PropertyView.t list;
        (** Properties that it reads. *)
  }

  let of_json json =
    {
      description = Codec.field Codec.string "description" json;
      external_ = Codec.field Codec.bool "external" json;
      kind = Codec.field Codec.string "kind" json;
      name = Codec.field Codec.string "name" json;
      properties = Codec.field (Codec.list PropertyView.of_json) "properties" json;
    }
end

(** What the processes of a fabric have used until one moment. *)
module UsageView = struct
  type t = {
    at : int;
        (** The time, in nanoseconds of the host's monotonic clock. *)
    processes : ProcessView.t list;
        (** `control`, `data`, guests, functions. *)
  }

  let of_json json =
    {
      at = Codec.field Codec.int "at" json;
      processes = Codec.field (Codec.list ProcessView.of_json) "processes" json;
    }
end

(** A VM with its reservation. *)
module VmView = struct
  type t = {
    aggregates : string list option;
        (** Aggregates its host must belong to. *)
    chain : string option;
        (** Its chain of functions. *)
    chain_index : int option;
        (** Place in the chain, from 0. *)
    cluster : string option;
        (** Its cluster. *)
    cores : int option;
        (** Cores a socket. *)
    cpu_flags : string list option;
        (** CPU flags that it needs; none for the cluster's. *)
    cpu_passthrough : bool option;
        (** Whether it has CPU passthrough. *)
    cpu_percent : int option;
        (** Measured CPU usage in percent of its virtual CPUs. *)
    devices : string list option;
        (** Host devices assigned to it. *)
    different_host : string list option;
        (** VMs it must not share a host with (Nova's hint `different_host`). *)
    ha : bool option;
        (** Whether it is highly available. *)
    high_performance : bool option;
        (** Whether it is a high-performance VM. *)
    hooks : string list option;
        (** Hooks it needs. *)
    host : string option;
        (** The host it runs on. *)
    hosted_engine : bool option;
        (** Whether it is oVirt's self-hosted engine. *)
    hosts : string list option;
        (** Hosts it is pinned to, or prefers. *)
    huge_page_kb : int option;
        (** Size in kB of the huge pages for its memory, if it uses them. *)
    kind : VmKind.t option;
        (** Its kind. *)
    labels : string list option;
        (** Labels, for affinity. *)
    last_host : string option;
        (** The host it last ran on. *)
    lease : string option;
        (** Storage domain that holds its lease. *)
    machine : string option;
        (** Its own machine type. *)
    mdevs : string list option;
        (** Types of mediated devices it needs. *)
    memory_mb : int option;
        (** Memory. *)
    migration : Migration.t option;
        (** Whether it may be moved. *)
    milli_cpus : int option;
        (** Its share of a host's CPUs, in thousandths of one, if different from its virtual CPUs. *)
    moved_at : int option;
        (** When it last moved. *)
    name : string option;
        (** Its name. *)
    nics : VmNic.t list option;
        (** Network cards. *)
    numa : VmNumaNode.t list option;
        (** Its virtual NUMA nodes. *)
    numa_local : bool option;
        (** Whether its CPUs, memory and port must be on one NUMA node. *)
    pinning : Pinning.t option;
        (** How its CPUs are bound. *)
    pins : int list option;
        (** Host CPUs that manual pinning names. *)
    policy : string option;
        (** Policy instead of its cluster's. *)
    ports : PortNeed.t list option;
        (** Its traffic. *)
    properties : (string * string) list option;
        (** Custom properties over its policy's. *)
    same_host : string list option;
        (** VMs it must share a host with (Nova's hint `same_host`). *)
    sockets : int option;
        (** Virtual sockets. *)
    status : VmStatus.t option;
        (** Its status. *)
    threads : int option;
        (** Threads a core. *)
    use_tsc : bool option;
        (** Whether its time stamp counter's frequency must never change. *)
    version : string option;
        (** Its own compatibility version. *)
    reserved : string option;
        (** The host reserved for it, until it runs there or the reservation expires. *)
  }

  let of_json json =
    {
      aggregates = Codec.optional (Codec.list Codec.string) "aggregates" json;
      chain = Codec.optional Codec.string "chain" json;
      chain_index = Codec.optional Codec.int "chain_index" json;
      cluster = Codec.optional Codec.string "cluster" json;
      cores = Codec.optional Codec.int "cores" json;
      cpu_flags = Codec.optional (Codec.list Codec.string) "cpu_flags" json;
      cpu_passthrough = Codec.optional Codec.bool "cpu_passthrough" json;
      cpu_percent = Codec.optional Codec.int "cpu_percent" json;
      devices = Codec.optional (Codec.list Codec.string) "devices" json;
      different_host = Codec.optional (Codec.list Codec.string) "different_host" json;
      ha = Codec.optional Codec.bool "ha" json;
      high_performance = Codec.optional Codec.bool "high_performance" json;
      hooks = Codec.optional (Codec.list Codec.string) "hooks" json;
      host = Codec.optional Codec.string "host" json;
      hosted_engine = Codec.optional Codec.bool "hosted_engine" json;
      hosts = Codec.optional (Codec.list Codec.string) "hosts" json;
      huge_page_kb = Codec.optional Codec.int "huge_page_kb" json;
      kind = Codec.optional VmKind.of_json "kind" json;
      labels = Codec.optional (Codec.list Codec.string) "labels" json;
      last_host = Codec.optional Codec.string "last_host" json;
      lease = Codec.optional Codec.string "lease" json;
      machine = Codec.optional Codec.string "machine" json;
      mdevs = Codec.optional (Codec.list Codec.string) "mdevs" json;
      memory_mb = Codec.optional Codec.int "memory_mb" json;
      migration = Codec.optional Migration.of_json "migration" json;
      milli_cpus = Codec.optional Codec.int "milli_cpus" json;
      moved_at = Codec.optional Codec.int "moved_at" json;
      name = Codec.optional Codec.string "name" json;
      nics = Codec.optional (Codec.list VmNic.of_json) "nics" json;
      numa = Codec.optional (Codec.list VmNumaNode.of_json) "numa" json;
      numa_local = Codec.optional Codec.bool "numa_local" json;
      pinning = Codec.optional Pinning.of_json "pinning" json;
      pins = Codec.optional (Codec.list Codec.int) "pins" json;
      policy = Codec.optional Codec.string "policy" json;
      ports = Codec.optional (Codec.list PortNeed.of_json) "ports" json;
      properties = Codec.optional (Codec.assoc Codec.string) "properties" json;
      same_host = Codec.optional (Codec.list Codec.string) "same_host" json;
      sockets = Codec.optional Codec.int "sockets" json;
      status = Codec.optional VmStatus.of_json "status" json;
      threads = Codec.optional Codec.int "threads" json;
      use_tsc = Codec.optional Codec.bool "use_tsc" json;
      version = Codec.optional Codec.string "version" json;
      reserved = Codec.optional Codec.string "reserved" json;
    }
end

(** Why a host would or would not run a VM. *)
module WhyNot = struct
  type t = {
    best : string option;
        (** The host that would be chosen. *)
    best_score : float option;
        (** Its score. *)
    better : int;
        (** Hosts that are better. *)
    chosen : bool;
        (** Whether the host would be chosen. *)
    errors : string list option;
        (** External units that failed and were left out. *)
    host : string;
        (** The host. *)
    refused : string option;
        (** The required external unit that failed, and its error: no host would be chosen then. *)
    rejected : Verdict.t list;
        (** Filters that reject it. *)
    score : float option;
        (** Its score. *)
    vm : string;
        (** The VM. *)
    weights : WeightTrace.t list;
        (** Its scores. *)
  }

  let of_json json =
    {
      best = Codec.optional Codec.string "best" json;
      best_score = Codec.optional Codec.float "best_score" json;
      better = Codec.field Codec.int "better" json;
      chosen = Codec.field Codec.bool "chosen" json;
      errors = Codec.optional (Codec.list Codec.string) "errors" json;
      host = Codec.field Codec.string "host" json;
      refused = Codec.optional Codec.string "refused" json;
      rejected = Codec.field (Codec.list Verdict.of_json) "rejected" json;
      score = Codec.optional Codec.float "score" json;
      vm = Codec.field Codec.string "vm" json;
      weights = Codec.field (Codec.list WeightTrace.of_json) "weights" json;
    }
end

(** A VM and a host. *)
module WhyNotRequest = struct
  type t = {
    host : string;
        (** The host. *)
    request : PlaceRequest.t;
        (** The VM. *)
  }

  let to_json it =
    Codec.record
      [
        Codec.some "host" Codec.of_string it.host;
        Codec.some "request" PlaceRequest.to_json it.request;
      ]

  let make ~host ~request () =
    { host; request }
end

(** The health: errors, one per line, if any. *)
let healthz socket =
  Control_socket.call socket "GET" "/healthz" [  ]

(** Metrics of the fabric in Prometheus' text format. *)
let metrics socket =
  Control_socket.call socket "GET" "/metrics" [  ]

(** Lets a function of another fabric of this host go on here, with its state. This fabric needs ring ports of
    the same names that nobody has. *)
let arrive_function socket body =
  ignore (Control_socket.call socket "POST" "/v1/arrivals" ~body:(Departure.to_json body) [  ])

(** Requests for changes, and what came of them; oldest first. *)
let audit ?count socket =
  (Codec.list AuditView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/audit" ~query:(List.concat [ Codec.parameter "count" Codec.text_of_int count ]) [  ]))

(** Every chain of functions. *)
let chains socket =
  (Codec.list ChainView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/chains" [  ]))

(** What has happened in the fabric, oldest first; as a stream, also what happens from now on. *)
let fabric_events ?after ?count ?follow socket =
  (Codec.list EventView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/events" ~query:(List.concat [ Codec.parameter "after" Codec.text_of_int after; Codec.parameter "count" Codec.text_of_int count; Codec.parameter "follow" Codec.text_of_bool follow ]) [  ]))

(** The fabric as a whole. *)
let fabric socket =
  FabricView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/fabric" [  ]))

(** Changes the fabric to the state described by a file, one change at a time. An invalid file changes nothing.
    *)
let put_fabric socket body =
  Changes.of_json (Codec.parsed (Control_socket.call socket "PUT" "/v1/fabric" ~body:(NewFabric.to_json body) [  ]))

(** The file that describes what runs: the last one, with what requests have changed since then. *)
let saved_fabric socket =
  SavedFabric.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/fabric/file" [  ]))

(** Every function. *)
let functions socket =
  (Codec.list FunctionView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/functions" [  ]))

(** Creates a function and starts it. It exists only if its configuration starts; a refused request changes
    nothing. *)
let create_function socket body =
  ignore (Control_socket.call socket "POST" "/v1/functions" ~body:(NewFunction.to_json body) [  ])

(** Stops a function and forgets it. *)
let destroy_function socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/functions/{}" [ name ])

(** Replaces the configuration of a running function; elements of the same name and class keep their state. A
    refused configuration changes nothing. *)
let update_function socket name body =
  ignore (Control_socket.call socket "PUT" "/v1/functions/{}/configuration" ~body:(NewConfiguration.to_json body) [ name ])

(** Stops a function in a VM between two frames, so that it can go on in another fabric of this host, to which
    the answer is posted as an arrival. It is suspended: resuming it lets it go on here after all, removing it
    ends it. *)
let depart_function socket name =
  Departure.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/functions/{}/depart" [ name ]))

(** Counts a running function's packets for a while. Returns its graph. *)
let function_graph ?seconds socket name =
  GraphView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/functions/{}/graph" ~query:(List.concat [ Codec.parameter "seconds" Codec.text_of_float seconds ]) [ name ]))

(** The function's graph as an SVG drawing. *)
let function_svg ?seconds socket name =
  Control_socket.call socket "GET" "/v1/functions/{}/graph.svg" ~query:(List.concat [ Codec.parameter "seconds" Codec.text_of_float seconds ]) [ name ]

(** Reads a handler of a function. *)
let read_handler socket name handler =
  HandlerValue.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/functions/{}/handlers/{}" [ name; handler ]))

(** Writes a handler of a function. *)
let write_handler socket name handler body =
  ignore (Control_socket.call socket "PUT" "/v1/functions/{}/handlers/{}" ~body:(HandlerValue.to_json body) [ name; handler ])

(** Lets a suspended function go on. *)
let resume_function socket name =
  ignore (Control_socket.call socket "POST" "/v1/functions/{}/resume" [ name ])

(** Takes a snapshot of a function in a VM, which runs on. It is kept in memory until it is removed, or the
    fabric goes down. *)
let snapshot_function socket name body =
  ignore (Control_socket.call socket "POST" "/v1/functions/{}/snapshot" ~body:(NewSnapshot.to_json body) [ name ])

(** Starts a function. Its configuration runs after the answer. *)
let start_function socket name =
  ignore (Control_socket.call socket "POST" "/v1/functions/{}/start" [ name ])

(** Stops a function. Its process ends after the answer. *)
let stop_function socket name =
  ignore (Control_socket.call socket "POST" "/v1/functions/{}/stop" [ name ])

(** Suspends a function: its process keeps its state, and its ports drop frames once their rings are full. *)
let suspend_function socket name =
  ignore (Control_socket.call socket "POST" "/v1/functions/{}/suspend" [ name ])

(** The whole fabric as a graph, with what passes during a sample. *)
let fabric_graph ?seconds socket =
  FabricGraphView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/graph" ~query:(List.concat [ Codec.parameter "seconds" Codec.text_of_float seconds ]) [  ]))

(** The fabric's graph as an SVG drawing. *)
let fabric_svg ?seconds socket =
  Control_socket.call socket "GET" "/v1/graph.svg" ~query:(List.concat [ Codec.parameter "seconds" Codec.text_of_float seconds ]) [  ]

(** Checks a guest that is to arrive from another fabric, and starts a QEMU that waits for it. The ports of the
    guest send nothing until it is activated. A refused guest changes nothing. *)
let prepare_guest socket body =
  ArrivalView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/guest-arrivals" ~body:(GuestArrival.to_json body) [  ]))

(** State of a guest that arrives, or has arrived. *)
let arriving_guest socket name ticket =
  ArrivalView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/guest-arrivals/{}/{}" [ name; ticket ]))

(** Gives up a guest that arrives. The answer comes once its QEMU has ended. *)
let abandon_guest socket name ticket =
  ignore (Control_socket.call socket "DELETE" "/v1/guest-arrivals/{}/{}" [ name; ticket ])

(** Lets a guest that has arrived go on here. The answer comes once it runs. Its former place must have stopped
    it, and must not let it go on unless it is told that it will not run here. *)
let activate_guest socket name ticket body =
  ignore (Control_socket.call socket "POST" "/v1/guest-arrivals/{}/{}/activate" ~body:(Activation.to_json body) [ name; ticket ])

(** Every guest. *)
let guests socket =
  (Codec.list GuestView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/guests" [  ]))

(** Runs a shell command in a guest. The answer comes when the command has ended. *)
let exec socket name body =
  ExecView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/guests/{}/exec" ~body:(Exec.to_json body) [ name ]))

(** Moves a running QEMU guest to another fabric, whose file describes the same guest. The answer comes once
    that fabric has checked and prepared it; a refused migration changes nothing. *)
let migrate_guest socket name body =
  MigrationView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/guests/{}/migrate" ~body:(NewMigration.to_json body) [ name ]))

(** How far the last migration of a guest from here is. *)
let guest_migration socket name =
  MigrationView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/guests/{}/migration" [ name ]))

(** Asks to end a migration: the guest runs on here. It is ended when the stage says so; it may be too late. A
    guest that arrives here, and was not activated, is given up. *)
let cancel_guest_migration socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/guests/{}/migration" [ name ])

(** Decides where a guest runs of which the other fabric does not say whether it runs there (stage `asking`),
    because it is lost for good. It is asked once more, and if it answers, that counts. Otherwise the guest goes
    on here, or is ended here: a guest that runs there too runs twice, and one that does not run there is lost.
    *)
let resolve_guest_migration socket name body =
  MigrationView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/guests/{}/migration/resolve" ~body:(MigrationDecision.to_json body) [ name ]))

(** Starts a guest. It boots after the answer. *)
let start_guest socket name =
  ignore (Control_socket.call socket "POST" "/v1/guests/{}/start" [ name ])

(** Stops a guest. It powers off after the answer. *)
let stop_guest socket name =
  ignore (Control_socket.call socket "POST" "/v1/guests/{}/stop" [ name ])

(** Every host, with its interfaces and programs. *)
let fabric_hosts socket =
  (Codec.list HostView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/hosts" [  ]))

(** Every emulated link, with its settings and counters. *)
let links socket =
  (Codec.list LinkView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/links" [  ]))

(** Changes settings of an emulated link while it runs. Frames under way arrive as before. A wrong value changes
    nothing. *)
let set_link socket name body =
  LinkView.of_json (Codec.parsed (Control_socket.call socket "PATCH" "/v1/links/{}" ~body:(LinkChange.to_json body) [ name ]))

(** Where the page for browsers is. *)
let page socket =
  PageView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/page" [  ]))

(** Decides where VMs run, and reserves their resources. *)
let decide socket body =
  DecisionView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place" ~body:(PlaceRequest.to_json body) [  ]))

(** The last rounds of balancing in which something happened, newest first. *)
let rounds socket =
  (Codec.list BalanceStep.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/balance" [  ]))

(** A round of balancing, carried out, or a preview of several. *)
let balance socket body =
  (Codec.list BalanceStep.of_json) (Codec.parsed (Control_socket.call socket "POST" "/v1/place/balance" ~body:(BalanceRequest.to_json body) [  ]))

(** The newest decisions, newest first. *)
let decisions ?count socket =
  (Codec.list DecisionView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/decisions" ~query:(List.concat [ Codec.parameter "count" Codec.text_of_int count ]) [  ]))

(** A decision's details, repeated at its revision. *)
let explain socket id =
  ExplainView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/place/decisions/{}" [ id ]))

(** Events: objects added, changed or deleted, reservations, decisions; oldest first. To follow, repeat the
    request with the answer's revision. *)
let events ?after ?count ?measurements socket =
  EventsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/place/events" ~query:(List.concat [ Codec.parameter "after" Codec.text_of_int after; Codec.parameter "count" Codec.text_of_int count; Codec.parameter "measurements" Codec.text_of_bool measurements ]) [  ]))

(** A filter that leaves only the node with the highest priority, so that kube-scheduler rates none: one request
    a pod, in place of `filter` and `prioritize`. *)
let best socket body =
  ExtenderFilterResult.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/extender/best" ~body:(ExtenderArgs.to_json body) [  ]))

(** Binds a pod to a node, here and in Kubernetes, with the requests from the last `filter` or `prioritize`, or
    those of the VM `NAMESPACE.NAME`. Refused if Kubernetes is not watched. *)
let bind socket body =
  BindingResult.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/extender/bind" ~body:(ExtenderBindingArgs.to_json body) [  ]))

(** Filters nodes for kube-scheduler. *)
let filter socket body =
  ExtenderFilterResult.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/extender/filter" ~body:(ExtenderArgs.to_json body) [  ]))

(** Rates nodes for kube-scheduler. *)
let prioritize socket body =
  (Codec.list HostPriority.of_json) (Codec.parsed (Control_socket.call socket "POST" "/v1/place/extender/prioritize" ~body:(ExtenderArgs.to_json body) [  ]))

(** Sets facts about hosts. The next decision uses them. *)
let facts socket body =
  RevisionView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/facts" ~body:((Codec.of_list FactPush.to_json) body) [  ]))

(** Deletes a fact about a host. *)
let remove_fact socket host name =
  ignore (Control_socket.call socket "DELETE" "/v1/place/facts/{}/{}" [ host; name ])

(** Places a guest or a function of the fabric file on this host, and starts it. *)
let place_guest socket name =
  DecisionView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/guests/{}/start" [ name ]))

(** Every host, with its remaining resources. *)
let hosts socket =
  (Codec.list HostRow.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/hosts" [  ]))

(** Ends a host's maintenance. *)
let activate socket name =
  StatusView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/hosts/{}/activate" [ name ]))

(** Puts a host into maintenance and moves its VMs away, some at a time. Repeat the request to follow it. *)
let drain socket name body =
  DrainView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/hosts/{}/drain" ~body:(DrainRequest.to_json body) [ name ]))

(** Puts a host into maintenance: it gets no new VMs, balancing rounds migrate its VMs, and it is in maintenance
    when it is empty. *)
let maintain socket name =
  StatusView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/hosts/{}/maintenance" [ name ]))

(** The objects that were added, as they are now. *)
let list_objects ?kind socket =
  (Codec.list Fun.id) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/objects" ~query:(List.concat [ Codec.parameter "kind" Codec.text_of_string kind ]) [  ]))

(** Adds or replaces objects, all or none: clusters, policies, hosts, loads, facts, blacklist entries, VMs,
    groups. *)
let objects socket body =
  RevisionView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/objects" ~body:((Codec.of_list Fun.id) body) [  ]))

(** Deletes an unused object. Deleting a host deletes its measurements. *)
let remove socket kind name =
  ignore (Control_socket.call socket "DELETE" "/v1/place/objects/{}/{}" [ kind; name ])

(** The sources of external units, with their errors. *)
let attached socket =
  PluginsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/place/plugins" [  ]))

(** Attaches external units in addition to those of the fabric file, replacing those attached before: folders of
    Python plugins, services in any language. They stay attached when the fabric is restarted. *)
let plugins socket body =
  (Codec.list UnitView.of_json) (Codec.parsed (Control_socket.call socket "PUT" "/v1/place/plugins" ~body:(Fun.id body) [  ]))

(** Every policy. *)
let policies socket =
  (Codec.list Policy.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/policies" [  ]))

(** A policy. *)
let policy socket name =
  Policy.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/place/policies/{}" [ name ]))

(** The store: its path, its contents, whether the disk is full. *)
let store socket =
  StoreView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/place/store" [  ]))

(** Writes a backup of the store to a file of the fabric's host, replacing it. *)
let backup socket body =
  StoreView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/store/backup" ~body:(BackupRequest.to_json body) [  ]))

(** Adds the fabric's own host to a cluster, so that VMs are placed on it too. *)
let join socket body =
  JoinView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/this-host" ~body:(JoinRequest.to_json body) [  ]))

(** Decides where VMs would run, with a full trace, without a reservation. *)
let attempt socket body =
  ExplainView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/try" ~body:(PlaceRequest.to_json body) [  ]))

(** Every unit that policies choose from. *)
let units socket =
  (Codec.list UnitView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/units" [  ]))

(** Every VM, with its reservation. *)
let vms socket =
  (Codec.list VmView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/place/vms" [  ]))

(** Confirms that a VM runs where it was placed. *)
let confirm socket name =
  ignore (Control_socket.call socket "POST" "/v1/place/vms/{}/confirm" [ name ])

(** Releases a VM's reservation. *)
let release socket name =
  ignore (Control_socket.call socket "POST" "/v1/place/vms/{}/release" [ name ])

(** Why a host would or would not run VMs. *)
let why_not socket body =
  WhyNot.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/place/why-not" ~body:(WhyNotRequest.to_json body) [  ]))

(** Every port, in the order of the file. *)
let ports socket =
  (Codec.list PortView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/ports" [  ]))

(** Adds a port. A wrong request changes nothing. *)
let add_port socket body =
  ignore (Control_socket.call socket "POST" "/v1/ports" ~body:(NewPort.to_json body) [  ])

(** Removes a port, and sends its peer away. *)
let remove_port socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/ports/{}" [ name ])

(** Changes what a switch lets a port send and receive, while frames pass. A wrong request changes nothing. *)
let set_port socket name body =
  PortView.of_json (Codec.parsed (Control_socket.call socket "PATCH" "/v1/ports/{}" ~body:(PortChange.to_json body) [ name ]))

(** Turns a port's carrier off: its driver sees a disconnected cable, and no frames pass. *)
let carrier_off socket name =
  ignore (Control_socket.call socket "POST" "/v1/ports/{}/down" [ name ])

(** Accesses to the registers of a port's card, and its interrupts, since its client connected. *)
let exits socket name =
  ExitsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/ports/{}/exits" [ name ]))

(** Says what would become of a frame that the peer of a port sent, with no effect; or sends it too. *)
let trace_frame socket name body =
  TraceView.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/ports/{}/trace" ~body:(NewTrace.to_json body) [ name ]))

(** Turns a port's carrier on, as the file may say it by `carrier`. *)
let carrier_on socket name =
  ignore (Control_socket.call socket "POST" "/v1/ports/{}/up" [ name ])

(** Measures for a while where the time of workers and functions goes. *)
let profile ?seconds ?elements socket =
  ProfileView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/profile" ~query:(List.concat [ Codec.parameter "seconds" Codec.text_of_float seconds; Codec.parameter "elements" Codec.text_of_bool elements ]) [  ]))

(** Every program. *)
let programs socket =
  (Codec.list ProgramView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/programs" [  ]))

(** Asks to end, and starts again, a program. *)
let restart_program socket name =
  ignore (Control_socket.call socket "POST" "/v1/programs/{}/restart" [ name ])

(** Starts a program. *)
let start_program socket name =
  ignore (Control_socket.call socket "POST" "/v1/programs/{}/start" [ name ])

(** Asks to end a program. *)
let stop_program socket name =
  ignore (Control_socket.call socket "POST" "/v1/programs/{}/stop" [ name ])

(** Rates of ports and links each second, as a stream of server-sent events named `rates`. A client that reads
    slowly misses some. *)
let rates socket =
  Control_socket.call socket "GET" "/v1/rates" [  ]

(** Takes the fabric down. The answer comes when that is done. *)
let shutdown socket =
  ignore (Control_socket.call socket "POST" "/v1/shutdown" [  ])

(** Every snapshot. *)
let snapshots socket =
  (Codec.list SnapshotView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/snapshots" [  ]))

(** Removes a snapshot. Its clones run on. *)
let forget_snapshot socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/snapshots/{}" [ name ])

(** Creates a function that goes on from a snapshot, and shares its memory until it writes it. Its restarts go
    on from there too. *)
let clone_snapshot socket name body =
  ignore (Control_socket.call socket "POST" "/v1/snapshots/{}/clone" ~body:(NewClone.to_json body) [ name ])

(** Counters of every port. Reading them costs the data path nothing. *)
let stats socket =
  StatsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/stats" [  ]))

(** Every switch. *)
let switches socket =
  (Codec.list SwitchView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/switches" [  ]))

(** Adds a switch. A wrong request changes nothing. *)
let add_switch socket body =
  ignore (Control_socket.call socket "POST" "/v1/switches" ~body:(NewSwitch.to_json body) [  ])

(** Removes a switch that has no ports. *)
let remove_switch socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/switches/{}" [ name ])

(** The flow tables of a switch, with what is counted. *)
let flows ?filter socket name =
  FlowsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/switches/{}/flows" ~query:(List.concat [ Codec.parameter "filter" Codec.text_of_string filter ]) [ name ]))

(** Makes the rules of the request those of a switch, at once. What stays keeps what was counted. *)
let replace_flows socket name body =
  FlowsChanged.of_json (Codec.parsed (Control_socket.call socket "PUT" "/v1/switches/{}/flows" ~body:(FlowsChange.to_json body) [ name ]))

(** Changes flows, groups and meters of a switch while frames pass: all changes at once, or none. *)
let change_flows socket name body =
  FlowsChanged.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/switches/{}/flows" ~body:(FlowsChange.to_json body) [ name ]))

(** The members of groups that a switch knows, if it snoops. *)
let groups socket name =
  GroupsView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/switches/{}/groups" [ name ]))

(** The addresses that a switch knows. *)
let table socket name =
  TableView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/switches/{}/table" [ name ]))

(** The clients of the API at its TCP address, without their tokens, which are not stored. *)
let tokens socket =
  (Codec.list TokenView.of_json) (Codec.parsed (Control_socket.call socket "GET" "/v1/tokens" [  ]))

(** Adds a client. Its token is in the answer, and nowhere else. *)
let add_token socket body =
  CreatedToken.of_json (Codec.parsed (Control_socket.call socket "POST" "/v1/tokens" ~body:(NewToken.to_json body) [  ]))

(** Removes a client; its next request is refused. *)
let remove_token socket name =
  ignore (Control_socket.call socket "DELETE" "/v1/tokens/{}" [ name ])

(** Processor time and memory of every guest, function and process of the fabric. *)
let usage socket =
  UsageView.of_json (Codec.parsed (Control_socket.call socket "GET" "/v1/usage" [  ]))
