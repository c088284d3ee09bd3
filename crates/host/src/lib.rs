//! Every system call: memory, events, sockets, TAP, sandbox.
