/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library's files share. Functions without `static` have the library's prefix, since a program that is linked with
 * libringway.a sees their names, and hidden visibility, so that libringway.so doesn't export them.
 */
#ifndef RINGWAY_PRIVATE_H
#define RINGWAY_PRIVATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ringway.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is little-endian, and so must this machine be"
#endif

#define MAGIC "Ringway"

/* Offsets in the ring's memory. */
enum { CLOSED = 512, CELLS = 1024, CELL = 128, PAGE = 4096 };
/* The two cells of a direction, and the words of a cell. */
enum { PRODUCER, CONSUMER };
enum { INDEX, WAKE, WAKE_AT };
/* The PCI device's register area: its smallest size, and the registers' offsets. */
enum { REGISTERS = 4096, DOORBELL = 0x0c, RESET = 0x80, STATUS = 0x84 };

/* The first bytes of the memory. */
struct header {
	char magic[8];
	uint32_t version, features, kind, slots[2], slot_size, stride, buffers, largest, first;
	uint64_t slots_at[2], buffers_at, bytes;
};

/* One direction. `peer` is the other side's index as it was read and checked last. */
struct side {
	int ring;
	uint32_t slots, next, published, peer;
};

struct ringway {
	uint8_t *memory;
	size_t mapped;
	struct header header;
	struct side tx, rx;
	int socket, kick, call;
	/* An epoll descriptor for `call`, edge-triggered so that it need not be read, and `socket`. */
	int fd;
	/* Whether ringway_arm() asked for a notification since the descriptors were looked at. */
	bool armed, hung_up;
	unsigned idle_syncs;
	/* The PCI device's registers, and vfio's container, group and device. */
	uint8_t *registers;
	size_t registers_size;
	int vfio[3];
};

static inline uint32_t *cell(const struct ringway *ring, int number, int side, int word)
{
	return (uint32_t *)(ring->memory + CELLS + number * 2 * CELL + side * CELL) + word;
}

/* Nanoseconds of the monotonic clock. */
static inline int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

#pragma GCC visibility push(hidden)

/* ringway.c: set errno and the text of ringway_error(), and return -1; the second one is for errors without a number. */
int ringway_fail(int error, const char *what);
int ringway_broken(const char *what);

/* queue.c */

/* Checks the header of the mapped memory and takes the ring over. `end`: of a pipe. */
int ringway_attach(struct ringway *ring, uint32_t end);
/* Free slots, of which `wanted` are enough to know. */
int ringway_room(struct ringway *ring, uint32_t wanted, uint32_t *free_slots);
/* Filled slots, of which `wanted` are enough to know. */
int ringway_available(struct ringway *ring, uint32_t wanted, uint32_t *filled);
/* Slots of the longest frame that can be sent. */
uint32_t ringway_most_slots(const struct ringway *ring);

/* wait.c: adds a descriptor to those for which ringway_fd() becomes readable. */
int ringway_watch(struct ringway *ring, int fd, uint32_t events);

/* socket.c and pci.c: open a ring by the path of a socket, or by the folder of a PCI device. */
int ringway_open_socket(struct ringway *ring, const char *path);
int ringway_open_pci(struct ringway *ring, const char *path);

#pragma GCC visibility pop
#endif
