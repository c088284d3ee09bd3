/* SPDX-License-Identifier: Apache-2.0
 * Passes frames between two ports until one is closed: bridge PORT PORT */
#include <poll.h>
#include <ringway.h>
#include <stdio.h>

/* Passes on what came; frames for which there is no room are dropped. Whether both ports are there. */
static int pass(struct ringway *from, struct ringway *to)
{
	static unsigned char frame[65536];
	ssize_t len;

	while ((len = ringway_rx(from, frame, sizeof frame)) > 0 && ringway_tx(to, frame, (size_t)len) >= 0)
		;
	return len == 0 && ringway_sync(from) == 0 && ringway_sync(to) == 0;
}

int main(int count, char **words)
{
	struct ringway *one = count == 3 ? ringway_open(words[1]) : NULL, *two = one ? ringway_open(words[2]) : NULL;

	while (two && pass(one, two) && pass(two, one)) {
		struct pollfd both[] = { { ringway_fd(one), POLLIN, 0 }, { ringway_fd(two), POLLIN, 0 } };

		if (ringway_arm(one, RINGWAY_RX) == 0 && ringway_arm(two, RINGWAY_RX) == 0)
			poll(both, 2, -1);
	}
	fprintf(stderr, "bridge: %s\n", count == 3 ? ringway_error() : "name two ports");
	ringway_close(one);
	ringway_close(two);
	return 1;
}
