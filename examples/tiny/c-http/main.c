/*
 * An HTTP server in C, with poll(2), for a tiny virtual machine:
 *
 *   GET /         a greeting, from the parameter GREETING
 *   GET /bytes/N  N bytes, at most 1 GB, to measure with
 *   GET /status   requests and connections, which datagrams to UDP port 80 are answered with too
 *
 * The first argument is the port, 80 if there is none. Connections are kept open.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Connections at once, bytes of a request's head, and seconds for a head, and for what is to be sent to leave. */
#define CONNECTIONS 256
#define HEAD 4096
#define CONNECTION_SECONDS 60
#define LARGEST 1000000000UL

struct connection {
	char head[HEAD];	/* What has come of a request. */
	size_t filled;
	char answer[512];	/* What is still to be sent of the answer's head, and then of its body. */
	size_t begin, end;
	unsigned long body;
	long since;		/* When it came, its last request was whole, or something was last sent. */
	int last;		/* It is closed after this answer. */
};

static struct pollfd entries[2 + CONNECTIONS];
static struct connection *connections[2 + CONNECTIONS];
static int count = 2;
static unsigned long requests, accepted;
static char filler[65536];

static long now(void)
{
	struct timeval time;

	gettimeofday(&time, NULL);
	return time.tv_sec;
}

static int status(char *text, size_t room)
{
	return snprintf(text, room, "requests %lu\nconnections %lu\nopen %d\n", requests, accepted, count - 2);
}

/* Prepares an answer with a short text, or else with so many bytes. */
static void answer(struct connection *own, const char *line, const char *text, unsigned long bytes, int has_body)
{
	size_t len = text ? strlen(text) : bytes;

	own->begin = 0;
	own->end = snprintf(own->answer, sizeof own->answer,
			    "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %lu\r\n%s\r\n%s", line,
			    (unsigned long)len, own->last ? "Connection: close\r\n" : "",
			    text && has_body ? text : "");
	own->body = text || !has_body ? 0 : bytes;
}

/* Answers a request, whose head ends with a zero. */
static void handle(struct connection *own)
{
	char text[256], *path = strchr(own->head, ' '), *end = path ? strchr(path + 1, ' ') : NULL;
	int is_head = !strncmp(own->head, "HEAD ", 5);

	requests++;
	own->last = !!strstr(own->head, "\r\nConnection: close");
	if (!end || strncmp(end, " HTTP/1.", 8)) {
		own->last = 1;
		answer(own, "400 Bad Request", "this is no request\n", 0, 1);
		return;
	}
	if (!is_head && strncmp(own->head, "GET ", 4)) {
		own->last = 1;	/* Its body is not read. */
		answer(own, "405 Method Not Allowed", "GET and HEAD are served\n", 0, 1);
		return;
	}
	*end = 0;
	path++;
	if (!strcmp(path, "/")) {
		const char *greeting = getenv("GREETING");

		snprintf(text, sizeof text, "%s\n", greeting ? greeting : "hello");
		answer(own, "200 OK", text, 0, !is_head);
	} else if (!strcmp(path, "/status")) {
		status(text, sizeof text);
		answer(own, "200 OK", text, 0, !is_head);
	} else if (!strncmp(path, "/bytes/", 7)) {
		unsigned long bytes = strtoul(path + 7, &end, 10);

		if (*end || !path[7] || bytes > LARGEST)
			answer(own, "404 Not Found", "a number up to 1000000000 is needed\n", 0, !is_head);
		else
			answer(own, "200 OK", NULL, bytes, !is_head);
	} else {
		answer(own, "404 Not Found", "there is no such page\n", 0, !is_head);
	}
}

/* Sends as much as there is room for; 0 when all is sent, 1 if more is to be sent, -1 if it failed. */
static int push(int file, struct connection *own)
{
	ssize_t sent;

	while (own->begin < own->end || own->body > 0) {
		if (own->begin < own->end) {
			sent = send(file, own->answer + own->begin, own->end - own->begin, 0);
			own->begin += sent > 0 ? sent : 0;
		} else {
			sent = send(file, filler, own->body < sizeof filler ? own->body : sizeof filler, 0);
			own->body -= sent > 0 ? sent : 0;
		}
		if (sent < 0)
			return errno == EAGAIN ? 1 : -1;
		own->since = now();
	}
	return 0;
}

/* Goes on with a connection; 0 if it is over. */
static int serve(struct pollfd *entry, struct connection *own)
{
	for (;;) {
		char *end;
		ssize_t got;
		int left = push(entry->fd, own);

		if (left < 0 || (left == 0 && own->end > 0 && own->last))
			return 0;
		entry->events = left ? POLLOUT : POLLIN;
		if (left)
			return 1;
		own->head[own->filled] = 0;
		end = strstr(own->head, "\r\n\r\n");
		if (end) {
			size_t used = end + 4 - own->head;

			*end = 0;
			handle(own);
			memmove(own->head, own->head + used, own->filled - used);
			own->filled -= used;
			continue;
		}
		if (own->filled == HEAD - 1)
			return 0;
		got = recv(entry->fd, own->head + own->filled, HEAD - 1 - own->filled, 0);
		if (got <= 0)
			return got < 0 && errno == EAGAIN;
		own->filled += got;
	}
}

static void accept_all(int listener)
{
	while (count < 2 + CONNECTIONS) {
		struct connection *own;
		int yes = 1, file = accept(listener, NULL, NULL);

		if (file < 0) {
			if (errno != EAGAIN)
				perror("accept");
			return;
		}
		accepted++;
		own = calloc(1, sizeof *own);
		if (!own) {
			fprintf(stderr, "there is no memory for a connection\n");
			close(file);
			continue;
		}
		fcntl(file, F_SETFL, O_NONBLOCK);
		setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
		own->since = now();
		connections[count] = own;
		entries[count] = (struct pollfd) { .fd = file, .events = POLLIN };
		count++;
	}
}

static void close_one(int at)
{
	close(entries[at].fd);
	free(connections[at]);
	count--;
	entries[at] = entries[count];
	connections[at] = connections[count];
}

/* Answers a datagram with the status. */
static void answer_datagram(int file)
{
	struct sockaddr_in6 from;
	socklen_t len = sizeof from;
	char text[256];

	if (recvfrom(file, text, sizeof text, 0, (struct sockaddr *)&from, &len) >= 0)
		sendto(file, text, status(text, sizeof text), 0, (struct sockaddr *)&from, len);
}

/* A socket of both families on a port. */
static int open_socket(int kind, int port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int file = socket(AF_INET6, kind, 0);

	if (file < 0 || bind(file, (struct sockaddr *)&any, sizeof any) || fcntl(file, F_SETFL, O_NONBLOCK) ||
	    (kind == SOCK_STREAM && listen(file, 64))) {
		perror("socket");
		exit(1);
	}
	return file;
}

int main(int argc, char **argv)
{
	int at, port = argc > 1 ? atoi(argv[1]) : 80;

	memset(filler, 'x', sizeof filler);
	entries[0] = (struct pollfd) { .fd = open_socket(SOCK_STREAM, port), .events = POLLIN };
	entries[1] = (struct pollfd) { .fd = open_socket(SOCK_DGRAM, port), .events = POLLIN };
	printf("HTTP on port %d\n", port);
	for (;;) {
		/* As many as there may be: further ones wait, and their peers. */
		entries[0].events = count < 2 + CONNECTIONS ? POLLIN : 0;
		if (poll(entries, count, 1000 * CONNECTION_SECONDS) < 0) {
			perror("poll");
			return 1;
		}
		for (at = count - 1; at >= 2; at--) {
			int is_late = now() - connections[at]->since > CONNECTION_SECONDS;

			if (entries[at].revents && !serve(&entries[at], connections[at]))
				is_late = 1;
			if (is_late)
				close_one(at);
		}
		if (entries[1].revents)
			answer_datagram(entries[1].fd);
		if (entries[0].revents)
			accept_all(entries[0].fd);
	}
}
