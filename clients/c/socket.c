/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a ring by the socket of a port or a pipe, whose messages docs/programs.md describes.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Milliseconds that ringway_open() waits before it says for what. */
enum { UNANNOUNCED = 1000 };
/* Longest name of a port. */
enum { PORT_NAME = 64 };

/* Receives the reply with its descriptors; those that are surplus are closed. */
static int receive(int socket, uint8_t *reply, size_t size, int fds[3])
{
	size_t filled = 0;
	int count = 0;

	while (filled < size) {
		union { char bytes[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } control;
		struct iovec part = { reply + filled, size - filled };
		struct msghdr message = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control,
		};
		ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return ringway_fail(got ? errno : ECONNRESET, "the port's socket");
		filled += (size_t)got;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			for (size_t at = 0; at < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); at++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + at * sizeof fd, sizeof fd);
				if (count < 3)
					fds[count++] = fd;
				else
					close(fd);
			}
		}
	}
	return 0;
}

static int map_file(struct ringway *ring, int fd)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	void *at;

	/* Memory that can shrink would end this program by a signal. */
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return ringway_broken("the ring's memory is not sealed");
	if (fstat(fd, &stat) || stat.st_size < PAGE)
		return ringway_broken("the ring's memory is too small");
	at = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return ringway_fail(errno, "mapping the ring");
	ring->memory = at;
	ring->mapped = (size_t)stat.st_size;
	return 0;
}

static void say(const char *what)
{
	if (!getenv("RINGWAY_QUIET"))
		fprintf(stderr, "%s\n", what);
}

static void (*tell)(const char *what) = say;

void ringway_tell(void (*function)(const char *what))
{
	__atomic_store_n(&tell, function, __ATOMIC_RELEASE);
}

/* Says for what the program waits, if there is no answer for a while. */
static void tell_late(int socket, const char *path)
{
	struct pollfd poll_fd = { .fd = socket, .events = POLLIN };
	int64_t end = now() + UNANNOUNCED * INT64_C(1000000), left;
	void (*function)(const char *what);
	char what[400];

	while ((left = end - now()) > 0)
		if (poll(&poll_fd, 1, (int)(left / 1000000) + 1) > 0)
			return;
	function = __atomic_load_n(&tell, __ATOMIC_ACQUIRE);
	if (!function)
		return;
	snprintf(what, sizeof what, "ringway: waits for the ring of %.120s: connected, but it gives none; another program may "
		"have it, or a pipe's other end is missing: `ringway ps` shows it", path);
	function(what);
}

/* The name of the port that a path without a file opens on a switch, and the length of the socket's path before it. */
static const char *opened(const char *path, size_t *len)
{
	const char *file = strrchr(path, '/'), *colon = strrchr(path, ':');

	file = file ? file + 1 : path;
	if (!colon || colon <= file || !colon[1] || strlen(colon + 1) > PORT_NAME || !access(path, F_OK))
		return NULL;
	*len = (size_t)(colon - path);
	return colon + 1;
}

/* Names the port that this program opens. */
static int send_name(int socket, const char *port)
{
	uint8_t name[9 + PORT_NAME] = "Ringopen";

	name[8] = (uint8_t)strlen(port);
	memcpy(name + 9, port, strlen(port));
	return send(socket, name, sizeof name, MSG_NOSIGNAL) == sizeof name ? 0 : -1;
}

int ringway_open_socket(struct ringway *ring, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(path);
	const char *port = opened(path, &length);
	uint8_t hello[40] = { 0 }, reply[256];
	uint32_t version = 1, end, len;
	int fds[3] = { -1, -1, -1 }, done;

	if (length >= sizeof address.sun_path)
		return ringway_fail(ENAMETOOLONG, path);
	memcpy(address.sun_path, path, length);
	ring->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ring->socket < 0 || connect(ring->socket, (struct sockaddr *)&address, sizeof address))
		return ringway_fail(errno, path);
	/* Zeros leave all sizes to Ringway. */
	memcpy(hello, MAGIC, sizeof MAGIC);
	memcpy(hello + 8, &version, sizeof version);
	if (port && send_name(ring->socket, port))
		return ringway_fail(errno, path);
	if (send(ring->socket, hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
		return ringway_fail(errno, path);
	tell_late(ring->socket, path);
	done = receive(ring->socket, reply, sizeof reply, fds);
	ring->kick = fds[1];
	ring->call = fds[2];
	if (done)
		goto out;
	memcpy(&version, reply + 8, sizeof version);
	memcpy(&end, reply + 12, sizeof end);
	memcpy(&len, reply + 16, sizeof len);
	done = -1;
	if (memcmp(reply, MAGIC, sizeof MAGIC) || version != 1) {
		ringway_broken("the socket is not a ring's, or of another version");
	} else if (end == UINT32_MAX) {
		int shown = len < sizeof reply - 20 ? (int)len : (int)sizeof reply - 20;
		char refusal[200];

		snprintf(refusal, sizeof refusal, "the ring was refused: %.*s", shown, (char *)reply + 20);
		ringway_broken(refusal);
		errno = EBUSY;
	} else if (fds[2] < 0) {
		ringway_broken("the reply has too few descriptors");
	} else {
		fcntl(ring->kick, F_SETFL, O_NONBLOCK);
		fcntl(ring->call, F_SETFL, O_NONBLOCK);
		done = map_file(ring, fds[0]) || ringway_attach(ring, end) || ringway_watch(ring, ring->call, EPOLLIN | EPOLLET)
			|| ringway_watch(ring, ring->socket, EPOLLIN | EPOLLRDHUP) ? -1 : 0;
	}
out:
	if (fds[0] >= 0)
		close(fds[0]);
	return done;
}
