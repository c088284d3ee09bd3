/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends numbered frames, or returns every frame to its sender:
 *
 *	frames send PATH COUNT	sends COUNT frames, each of which must come back, in order and unchanged
 *	frames return PATH COUNT	returns COUNT frames to their senders
 *	frames poll PATH COUNT	the same, with a poll() of its own
 *
 * PATH is the socket of a port, or in a guest the folder of the PCI device.
 */
#include <ringway.h>

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 14, LONGEST = 1514, AHEAD = 32, TIMEOUT_MS = 60000 };

/* Headers of sent and of returned frames: a group address, which every switch floods, the sender's own, and the EtherType
 * for local experiments. */
static const uint8_t SENT[HEADER] = { 3, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 7, 0x88, 0xb5 };
static const uint8_t RETURNED[HEADER] = { 3, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 0x88, 0xb5 };

/* Fills in frame `number`; returns its length. */
static size_t fill(uint8_t *frame, uint32_t number)
{
	size_t len = 60 + number * 97 % (LONGEST - 59);

	memcpy(frame, SENT, HEADER);
	memcpy(frame + HEADER, &number, sizeof number);
	for (size_t at = HEADER + sizeof number; at < len; at++)
		frame[at] = (uint8_t)(number + at);
	return len;
}

static int failed(void)
{
	fprintf(stderr, "frames: %s\n", ringway_error());
	return 1;
}

static int send_all(struct ringway *ring, uint32_t count)
{
	uint8_t frame[LONGEST], back[LONGEST];
	uint32_t sent = 0, received = 0;

	while (received < count) {
		int done = 1;
		ssize_t got;

		while (sent < count && sent - received < AHEAD && done == 1) {
			done = ringway_tx(ring, frame, fill(frame, sent));
			if (done < 0)
				return failed();
			sent += (uint32_t)done;
		}
		/* Room may come after the frames that are on their way. */
		done = ringway_poll(ring, RINGWAY_RX | (done ? 0 : RINGWAY_TX), TIMEOUT_MS);
		if (done < 0)
			return failed();
		if (!done) {
			fprintf(stderr, "frames: frame %u did not come back\n", received);
			return 1;
		}
		while ((got = ringway_rx(ring, back, sizeof back)) > 0) {
			size_t len = fill(frame, received);

			memcpy(frame, RETURNED, HEADER);
			if (got < HEADER || memcmp(back, RETURNED, HEADER))
				continue;
			if ((size_t)got != len || memcmp(back, frame, len)) {
				fprintf(stderr, "frames: frame %u is not what was sent\n", received);
				return 1;
			}
			received++;
		}
		if (got < 0)
			return failed();
	}
	printf("%u frames came back\n", received);
	return 0;
}

/* Waits for one of `events`; negative: the ring is closed. */
typedef int wait_for(struct ringway *ring, int events);

static int by_library(struct ringway *ring, int events)
{
	return ringway_poll(ring, events, -1);
}

/* A program would poll other descriptors too. */
static int by_poll(struct ringway *ring, int events)
{
	struct pollfd one = { .fd = ringway_fd(ring), .events = POLLIN };
	int there;

	while ((there = ringway_arm(ring, events)) == 0)
		/* A device without a descriptor is looked at each millisecond. */
		poll(&one, 1, one.fd < 0 ? 1 : -1);
	return there;
}

static int return_all(struct ringway *ring, uint32_t count, wait_for *wait_for)
{
	uint8_t frame[LONGEST];
	uint32_t returned = 0;

	while (returned < count) {
		ssize_t got = 0;

		if (wait_for(ring, RINGWAY_RX) < 0)
			return failed();
		while (returned < count && (got = ringway_rx(ring, frame, sizeof frame)) > 0) {
			int done;

			if (got < HEADER || memcmp(frame, SENT, HEADER))
				continue;
			memcpy(frame, RETURNED, HEADER);
			while ((done = ringway_tx(ring, frame, (size_t)got)) == 0)
				if (wait_for(ring, RINGWAY_TX) < 0)
					return failed();
			if (done < 0)
				return failed();
			returned++;
		}
		if (got < 0)
			return failed();
		/* The sender may leave as soon as it has the last one. */
		if (ringway_sync(ring) && returned < count)
			return failed();
	}
	/* What is closed too early is lost. */
	while (ringway_unsent(ring) > 0 && ringway_poll(ring, 0, 1) == 0)
		;
	printf("%u frames returned\n", returned);
	return 0;
}

int main(int count, char **words)
{
	const char *what = count == 4 ? words[1] : "";
	struct ringway *ring;
	uint32_t frames;
	int status;

	if (strcmp(what, "send") && strcmp(what, "return") && strcmp(what, "poll")) {
		fprintf(stderr, "usage: frames send|return|poll PATH COUNT\n");
		return 2;
	}
	ring = ringway_open(words[2]);
	if (!ring)
		return failed();
	frames = (uint32_t)strtoul(words[3], NULL, 10);
	if (!strcmp(what, "send"))
		status = send_all(ring, frames);
	else
		status = return_all(ring, frames, strcmp(what, "poll") ? by_library : by_poll);
	ringway_close(ring);
	return status;
}
