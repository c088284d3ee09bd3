/* SPDX-License-Identifier: Apache-2.0
 * Receives frames, and prints the number and the length of each: receiver PORT COUNT */
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	struct ringway *ring = count == 3 ? ringway_open(words[1]) : NULL;
	unsigned number, left = count == 3 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
	const unsigned char *frame;
	int found = ring ? 0 : -1;
	size_t len;

	/* The poll syncs, so that slots of frames go back. */
	while (found >= 0 && left > 0 && (found = ringway_poll(ring, RINGWAY_RX, -1)) >= 0)
		while (left > 0 && (found = ringway_rx_view(ring, (const void **)&frame, &len)) == 1)
			if (len >= 18) {
				memcpy(&number, frame + 14, sizeof number);
				printf("%u: %zu bytes\n", number, len);
				left--;
			}
	/* The sender learns that all has come. */
	if (ring)
		ringway_sync(ring);
	if (found < 0)
		fprintf(stderr, "receiver: %s\n", count == 3 ? ringway_error() : "name PORT and COUNT");
	ringway_close(ring);
	return found < 0;
}
