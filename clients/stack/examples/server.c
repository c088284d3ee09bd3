/* Sends back what the clients of port 7 send, with a poll loop of its own: server PORT OWN/PREFIX CONNECTIONS */
#include <errno.h>
#include <netinet/in.h>
#include <ringway-stack.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7)};
	struct pollfd ready = {.events = POLLIN};
	int network, listener, stream, left = count == 4 ? atoi(words[3]) : 0;
	char bytes[4096];
	ssize_t len;

	network = left > 0 ? ringway_network(words[1], words[2], NULL) : -1;
	if (network < 0)
		return fprintf(stderr, "%s\n", left ? ringway_network_error() : "usage: server PORT OWN/PREFIX N"), 1;
	listener = ringway_socket(network, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (ringway_bind(listener, (struct sockaddr *)&own, sizeof(own)) || ringway_listen(listener, 16))
		return perror("listen"), 1;
	while (left > 0) {
		ready.fd = ringway_pollfd(listener, POLLIN);
		poll(&ready, 1, -1);
		if ((stream = ringway_accept(listener, NULL, NULL)) < 0) {
			if (errno == EAGAIN)
				continue;
			return perror("accept"), 1;
		}
		while ((len = ringway_recv(stream, bytes, sizeof(bytes), 0)) > 0)
			ringway_send(stream, bytes, len, 0);
		ringway_close(stream);
		left--;
	}
	ringway_close(listener);
	/* A client that has ended already does not acknowledge that its connection is closed. */
	ringway_close(network);
	return 0;
}
