/* Sends its standard input to a server, and writes what comes back: client PORT OWN/PREFIX SERVER */
#include <arpa/inet.h>
#include <errno.h>
#include <ringway-stack.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
	struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(7)};
	int network, stream;
	char bytes[4096];
	ssize_t len;

	if (count != 4 || inet_pton(AF_INET, words[3], &server.sin_addr) != 1)
		return fprintf(stderr, "usage: client PORT OWN/PREFIX SERVER\n"), 2;
	network = ringway_network(words[1], words[2], "cc=bbr");
	if (network < 0)
		return fprintf(stderr, "%s\n", ringway_network_error()), 1;
	stream = ringway_socket(network, AF_INET, SOCK_STREAM, 0);
	/* The server may not listen yet. */
	while (ringway_connect(stream, (struct sockaddr *)&server, sizeof(server)))
		if (errno != ECONNREFUSED || usleep(10000))
			return perror(words[3]), 1;
	while ((len = read(0, bytes, sizeof(bytes))) > 0) {
		if (ringway_send(stream, bytes, len, 0) != len)
			return perror("send"), 1;
		if (ringway_recv(stream, bytes, len, MSG_WAITALL) != len || write(1, bytes, len) != len)
			return perror("receive"), 1;
	}
	if (ringway_shutdown(stream, SHUT_WR) || ringway_recv(stream, bytes, sizeof(bytes), 0) != 0)
		return perror("end"), 1;
	return ringway_close(stream) || ringway_close(network);
}
