/* Sockets of Ringway's TCP/IP stack for programs in C: libringway-stack.so.
 *
 * A network is a host on a port of a fabric, or on a pipe. Its sockets have POSIX's calls with a prefix. They return what
 * POSIX's return, and -1 with errno. Numbers of networks and sockets are this library's, not descriptors of the kernel: only
 * these calls take them. Any thread may call. No call returns EINTR, and none raises SIGPIPE.
 *
 * After fork() every call in the child fails with ENETDOWN: the network stays the parent's. exec() leaves nothing of it.
 *
 * This header and ringway.h of the library of rings have names in common: a source file includes one of them, and a program
 * is linked with one of the libraries. */
#ifndef RINGWAY_STACK_H
#define RINGWAY_STACK_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A network on the port whose socket is at `path`, with addresses such as "10.0.0.2/24 fd00::2/64". `settings` may be NULL, or
 * "gateway=10.0.0.1 cc=bbr mtu=1500". EINVAL: ringway_network_error() says what is wrong, until this thread's next call. */
int ringway_network(const char *path, const char *addresses, const char *settings);
const char *ringway_network_error(void);

/* AF_INET or AF_INET6; SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK if it shall not block. An IPv6 socket serves IPv6 only. */
int ringway_socket(int network, int family, int type, int protocol);
int ringway_bind(int socket, const struct sockaddr *address, socklen_t len);
int ringway_listen(int socket, int backlog);
int ringway_accept(int socket, struct sockaddr *address, socklen_t *len);
int ringway_accept4(int socket, struct sockaddr *address, socklen_t *len, int flags);
int ringway_connect(int socket, const struct sockaddr *address, socklen_t len);

/* Flags: MSG_DONTWAIT, MSG_NOSIGNAL; to send MSG_MORE; to receive MSG_PEEK (streams) and MSG_WAITALL. */
ssize_t ringway_send(int socket, const void *data, size_t len, int flags);
ssize_t ringway_sendto(int socket, const void *data, size_t len, int flags, const struct sockaddr *address,
		       socklen_t address_len);
ssize_t ringway_recv(int socket, void *data, size_t len, int flags);
ssize_t ringway_recvfrom(int socket, void *data, size_t len, int flags, struct sockaddr *address,
			 socklen_t *address_len);

/* poll() of this library's sockets; others are POLLNVAL. */
int ringway_poll(struct pollfd *list, nfds_t count, int timeout);
/* For programs with a poll loop of their own: a descriptor of the kernel that is readable (POLLIN) once the socket is ready for
 * one of `events`. It is to be polled only, and belongs to the socket until ringway_close(). Call this before each poll. */
int ringway_pollfd(int socket, short events);

/* SOL_SOCKET: SO_RCVTIMEO, SO_SNDTIMEO, SO_KEEPALIVE; to set only SO_REUSEADDR, which has no effect; to read only SO_ERROR,
 * SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN. IPPROTO_TCP: TCP_NODELAY, TCP_CORK, TCP_CONGESTION. IPPROTO_IPV6:
 * IPV6_V6ONLY, to set only, and not to 0. Others are ENOPROTOOPT. */
int ringway_setsockopt(int socket, int level, int name, const void *value, socklen_t len);
int ringway_getsockopt(int socket, int level, int name, void *value, socklen_t *len);
int ringway_getsockname(int socket, struct sockaddr *address, socklen_t *len);
int ringway_getpeername(int socket, struct sockaddr *address, socklen_t *len);
/* What O_NONBLOCK of fcntl() is for a descriptor of the kernel. */
int ringway_set_nonblocking(int socket, int nonblocking);
int ringway_shutdown(int socket, int how);

/* Closes a socket or a network. What a closed socket has sent is still delivered, as long as the program runs: close the
 * network before the program ends. This waits until its peers have acknowledged everything, at most five seconds, and then
 * fails with ETIMEDOUT. */
int ringway_close(int number);

#ifdef __cplusplus
}
#endif
#endif
