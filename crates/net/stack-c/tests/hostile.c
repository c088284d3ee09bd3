/* Wrong calls are errors, and what is right goes on: hostile PORT. Its connections are to itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <ringway-stack.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, why)                                                                                     \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		if ((long)(call) != -1 || errno != (why)) {                                                  \
			printf("line %d: %s: errno %d, not %d\n", __LINE__, #call, errno, (why));             \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)
#define WORKS(call)                                                                                          \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		if (!(call)) {                                                                               \
			printf("line %d: %s: errno %d\n", __LINE__, #call, errno);                            \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)
#define THREADS 4
#define EACH 200000

static int network, one, other;
static struct sockaddr_in own = {.sin_family = AF_INET};
#define OWN ((struct sockaddr *)&own)

static void wrong_numbers(int number, int why)
{
	struct sockaddr_storage space;
	socklen_t len = sizeof(space);
	char byte = 0;

	FAILS(ringway_bind(number, OWN, sizeof(own)), why);
	FAILS(ringway_listen(number, 1), why);
	FAILS(ringway_accept(number, NULL, NULL), why);
	FAILS(ringway_connect(number, OWN, sizeof(own)), why);
	FAILS(ringway_send(number, &byte, 1, 0), why);
	FAILS(ringway_recv(number, &byte, 1, 0), why);
	FAILS(ringway_sendto(number, &byte, 1, 0, OWN, sizeof(own)), why);
	FAILS(ringway_getsockname(number, (struct sockaddr *)&space, &len), why);
	FAILS(ringway_getpeername(number, (struct sockaddr *)&space, &len), why);
	FAILS(ringway_setsockopt(number, SOL_SOCKET, SO_KEEPALIVE, &number, sizeof(number)), why);
	FAILS(ringway_getsockopt(number, SOL_SOCKET, SO_ERROR, &byte, &len), why);
	FAILS(ringway_set_nonblocking(number, 1), why);
	FAILS(ringway_shutdown(number, SHUT_WR), why);
	FAILS(ringway_pollfd(number, POLLIN), why);
}

static void wrong_pointers(int stream)
{
	char byte = 0;
	socklen_t len = 0x80000000;
	struct pollfd space[2];
	int on = 1;

	FAILS(ringway_network(NULL, "10.0.0.1/24", NULL), EFAULT);
	FAILS(ringway_network("/nowhere", NULL, NULL), EFAULT);
	FAILS(ringway_network("/nowhere", "10.0.0.1/24", NULL), EINVAL);
	WORKS(strstr(ringway_network_error(), "/nowhere"));
	FAILS(ringway_network("/nowhere", "10.0.0.1/24", "cc=none"), EINVAL);
	WORKS(strstr(ringway_network_error(), "cc: \"none\" is not"));
	FAILS(ringway_bind(stream, NULL, sizeof(own)), EFAULT);
	FAILS(ringway_bind(stream, OWN, 3), EINVAL);
	FAILS(ringway_bind(stream, OWN, UINT32_MAX), EINVAL);
	FAILS(ringway_connect(stream, NULL, sizeof(own)), EFAULT);
	FAILS(ringway_send(stream, NULL, 1, 0), EFAULT);
	FAILS(ringway_send(stream, &byte, SIZE_MAX, 0), EFAULT);
	FAILS(ringway_recv(stream, NULL, 1, 0), EFAULT);
	FAILS(ringway_recv(stream, &byte, SIZE_MAX, 0), EFAULT);
	FAILS(ringway_recv(stream, &byte, SIZE_MAX / 2, 0), EFAULT);
	FAILS(ringway_recvfrom(stream, &byte, 1, 0, OWN, NULL), EFAULT);
	FAILS(ringway_recv(stream, &byte, 1, MSG_OOB), EOPNOTSUPP);
	FAILS(ringway_send(stream, &byte, 1, MSG_OOB), EOPNOTSUPP);
	FAILS(ringway_getsockname(stream, NULL, NULL), EFAULT);
	FAILS(ringway_getsockname(stream, (struct sockaddr *)&byte, &len), EINVAL);
	FAILS(ringway_setsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, NULL, 4), EFAULT);
	FAILS(ringway_setsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, &on, 1), EINVAL);
	FAILS(ringway_setsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, &on, UINT32_MAX), EINVAL);
	FAILS(ringway_setsockopt(stream, 99, 99, &on, 4), ENOPROTOOPT);
	FAILS(ringway_setsockopt(stream, IPPROTO_TCP, TCP_CONGESTION, "none", 4), ENOENT);
	FAILS(ringway_poll(NULL, 1, 0), EFAULT);
	FAILS(ringway_poll(NULL, UINT64_MAX, 0), EINVAL);
	FAILS(ringway_poll((struct pollfd *)(void *)((char *)&space + 1), 1, 0), EFAULT);
	FAILS(ringway_poll((struct pollfd *)((UINT64_C(1) << 56) - sizeof(struct pollfd)), 2, 0), EFAULT);
	FAILS(ringway_shutdown(stream, 7), EINVAL);
}

static void *sends(void *letter)
{
	char bytes[1000];
	int sent;

	memset(bytes, *(char *)letter, sizeof(bytes));
	for (sent = 0; sent < EACH; sent += sizeof(bytes))
		WORKS(ringway_send(one, bytes, sizeof(bytes), 0) == sizeof(bytes));
	return NULL;
}

static void several_threads(void)
{
	pthread_t threads[THREADS];
	char letters[] = "abcd", bytes[5000];
	long counts[256] = {0}, total = 0;
	ssize_t len, at;

	for (at = 0; at < THREADS; at++)
		WORKS(pthread_create(&threads[at], NULL, sends, &letters[at]) == 0);
	for (; total < THREADS * EACH; total += len) {
		WORKS((len = ringway_recv(other, bytes, sizeof(bytes), 0)) > 0);
		for (at = 0; at < len; at++)
			counts[(unsigned char)bytes[at]]++;
	}
	for (at = 0; at < THREADS; at++) {
		pthread_join(threads[at], NULL);
		WORKS(counts[(unsigned char)letters[at]] == EACH);
	}
}

static void fork_leaves_nothing(void)
{
	struct pollfd ready = {.fd = other, .events = POLLIN};
	char byte = 'x';
	int status;
	pid_t child = fork();

	if (child == 0) {
		wrong_numbers(one, ENETDOWN);
		FAILS(ringway_socket(network, AF_INET, SOCK_STREAM, 0), ENETDOWN);
		FAILS(ringway_poll(&ready, 1, -1), ENETDOWN);
		FAILS(ringway_close(network), ENETDOWN);
		FAILS(ringway_network("/nowhere", "10.0.0.1/24", NULL), ENETDOWN);
		exit(0);
	}
	WORKS(waitpid(child, &status, 0) == child && status == 0);
	WORKS(ringway_send(one, &byte, 1, 0) == 1 && ringway_recv(other, &byte, 1, 0) == 1 && byte == 'x');
}

static void connects(void)
{
	struct pollfd ready[3] = {{.events = POLLOUT}, {.fd = 0, .events = POLLIN}, {.fd = -1}};
	socklen_t len = sizeof(own);
	int listener = ringway_socket(network, AF_INET, SOCK_STREAM, 0), error = -1;
	struct timeval soon = {.tv_usec = 10000};
	char byte;

	one = ringway_socket(network, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	own.sin_port = htons(9);
	ringway_set_nonblocking(one, 0);
	FAILS(ringway_connect(one, OWN, sizeof(own)), ECONNREFUSED);
	FAILS(ringway_send(one, "x", 1, 0), ENOTCONN);
	own.sin_port = 0;
	WORKS(ringway_bind(listener, OWN, sizeof(own)) == 0 && ringway_listen(listener, INT32_MAX) == 0);
	FAILS(ringway_bind(listener, OWN, sizeof(own)), EINVAL);
	WORKS(ringway_getsockname(listener, OWN, &len) == 0 && own.sin_port != 0);
	ringway_set_nonblocking(listener, 1);
	FAILS(ringway_accept(listener, NULL, NULL), EAGAIN);
	ringway_set_nonblocking(listener, 0);
	ringway_set_nonblocking(one, 1);
	/* The handshake with oneself may be over when the call returns. */
	WORKS(ringway_connect(one, OWN, sizeof(own)) == 0 || errno == EINPROGRESS);
	ready[0].fd = one;
	WORKS(ringway_poll(ready, 1, -1) == 1);
	WORKS(ringway_poll(ready, 3, -1) == 2 && ready[1].revents == POLLNVAL && ready[2].revents == 0);
	ready[1].fd = -1;
	WORKS(ringway_poll(ready, 3, -1) == 1 && ready[0].revents == POLLOUT);
	len = sizeof(error);
	WORKS(ringway_getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0 && len == 4);
	ringway_set_nonblocking(one, 0);
	WORKS((other = ringway_accept(listener, NULL, NULL)) > 0);
	WORKS(ringway_setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
	FAILS(ringway_recv(other, &byte, 1, 0), EAGAIN);
	soon.tv_usec = 0;
	WORKS(ringway_setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
	FAILS(ringway_recv(other, &byte, 1, MSG_DONTWAIT), EAGAIN);
	WORKS(ringway_close(listener) == 0);
	FAILS(ringway_close(listener), EBADF);
}

static void nobody_answers(void)
{
	struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_port = htons(9)};
	int socket = ringway_socket(network, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd ready = {.fd = socket, .events = POLLIN | POLLOUT};
	char byte;

	WORKS(inet_pton(AF_INET, "10.0.0.99", &nobody.sin_addr) == 1);
	FAILS(ringway_connect(socket, (struct sockaddr *)&nobody, sizeof(nobody)), EINPROGRESS);
	FAILS(ringway_connect(socket, (struct sockaddr *)&nobody, sizeof(nobody)), EALREADY);
	FAILS(ringway_recv(socket, &byte, 1, 0), EAGAIN);
	FAILS(ringway_getpeername(socket, (struct sockaddr *)&nobody, &(socklen_t){sizeof(nobody)}), ENOTCONN);
	WORKS(ringway_poll(&ready, 1, 0) == 0 && ready.revents == 0);
	WORKS(ringway_close(socket) == 0);
}

static void datagrams(void)
{
	int socket = ringway_socket(network, AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	char bytes[8];

	own.sin_port = 0;
	WORKS(ringway_bind(socket, OWN, sizeof(own)) == 0);
	WORKS(ringway_getsockname(socket, OWN, &len) == 0);
	WORKS(ringway_poll(&ready, 1, 0) == 0);
	FAILS(ringway_send(socket, "hello", 5, 0), EDESTADDRREQ);
	WORKS(ringway_sendto(socket, "hello", 5, 0, OWN, sizeof(own)) == 5);
	ready.fd = ringway_pollfd(socket, POLLIN);
	WORKS(poll(&ready, 1, -1) == 1 && ready.revents == POLLIN);
	WORKS(ringway_recvfrom(socket, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &len) == 5);
	WORKS(memcmp(bytes, "hello", 5) == 0 && len == sizeof(from) && memcmp(&from, &own, 8) == 0);
	WORKS(ringway_close(socket) == 0);
	FAILS(ringway_recv(socket, bytes, sizeof(bytes), 0), EBADF);
}

int main(int count, char **words)
{
	int stream, closed;

	WORKS(count == 2 && inet_pton(AF_INET, "10.0.0.1", &own.sin_addr) == 1);
	wrong_numbers(-1, EBADF);
	WORKS((network = ringway_network(words[1], "10.0.0.1/24", NULL)) > 0);
	wrong_numbers(0, EBADF);
	wrong_numbers(1 << 30 | 12345, EBADF);
	wrong_numbers(network, ENOTSOCK);
	FAILS(ringway_socket(network, 99, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(ringway_socket(network, AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT);
	FAILS(ringway_socket(network, AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	WORKS((stream = ringway_socket(network, AF_INET, SOCK_STREAM, 0)) > 0);
	FAILS(ringway_socket(stream, AF_INET, SOCK_STREAM, 0), EBADF);
	wrong_pointers(stream);
	closed = ringway_close(stream);
	WORKS(closed == 0);
	wrong_numbers(stream, EBADF);
	connects();
	several_threads();
	fork_leaves_nothing();
	datagrams();
	nobody_answers();
	WORKS(ringway_close(one) == 0 && ringway_recv(other, &closed, 4, 0) == 0 && ringway_close(other) == 0);
	WORKS(ringway_close(network) == 0);
	FAILS(ringway_socket(network, AF_INET, SOCK_STREAM, 0), EBADF);
	puts("done");
	return 0;
}
