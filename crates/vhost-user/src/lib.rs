//! vhost-user messages and session state, both ends, without sockets.
