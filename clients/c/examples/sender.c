/* SPDX-License-Identifier: Apache-2.0
 * Sends numbered frames: sender PORT COUNT */
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	/* To and from local addresses, with the EtherType for local experiments. */
	unsigned char frame[60] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };
	struct ringway *ring = count == 3 ? ringway_open(words[1]) : NULL;
	unsigned frames = count == 3 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
	int done = ring ? 0 : -1;

	for (unsigned number = 0; done >= 0 && number < frames; number++) {
		memcpy(frame + 14, &number, sizeof number);
		while (done >= 0 && !(done = ringway_tx(ring, frame, sizeof frame)))
			done = ringway_poll(ring, RINGWAY_TX, -1);
	}
	/* What the other side has not taken when the ring is closed is lost; it may leave as soon as it has all. */
	while (done >= 0 && ringway_unsent(ring) > 0)
		if (ringway_poll(ring, 0, 1) < 0 && ringway_unsent(ring) > 0)
			done = -1;
	if (done < 0)
		fprintf(stderr, "sender: %s\n", count == 3 ? ringway_error() : "name PORT and COUNT");
	ringway_close(ring);
	return done < 0;
}
