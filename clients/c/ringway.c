/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a ring, and errors.
 */
#include "private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static __thread char text[200];

const char *ringway_error(void)
{
	return text;
}

int ringway_fail(int error, const char *what)
{
	if (error)
		snprintf(text, sizeof text, "%.120s: %s", what, strerror(error));
	else
		snprintf(text, sizeof text, "%.199s", what);
	errno = error ? error : EPROTO;
	return -1;
}

int ringway_broken(const char *what)
{
	return ringway_fail(0, what);
}

struct ringway *ringway_open(const char *path)
{
	struct ringway *ring = calloc(1, sizeof *ring);
	struct stat stat_of;
	int done;

	if (!ring) {
		ringway_fail(ENOMEM, path);
		return NULL;
	}
	ring->socket = ring->kick = ring->call = ring->fd = -1;
	ring->vfio[0] = ring->vfio[1] = ring->vfio[2] = -1;
	if (!stat(path, &stat_of) && S_ISDIR(stat_of.st_mode))
		done = ringway_open_pci(ring, path);
	else
		done = ringway_open_socket(ring, path);
	if (done) {
		int error = errno;

		ringway_close(ring);
		errno = error;
		return NULL;
	}
	return ring;
}

void ringway_close(struct ringway *ring)
{
	int fds[7];

	if (!ring)
		return;
	if (ring->registers) {
		__atomic_store_n((uint32_t *)(ring->registers + STATUS), 0, __ATOMIC_RELEASE);
		munmap(ring->registers, ring->registers_size);
	}
	if (ring->memory)
		munmap(ring->memory, ring->mapped);
	memcpy(fds, (int[]){ ring->fd, ring->socket, ring->kick, ring->call, ring->vfio[2], ring->vfio[1], ring->vfio[0] },
	       sizeof fds);
	for (size_t at = 0; at < sizeof fds / sizeof *fds; at++)
		if (fds[at] >= 0)
			close(fds[at]);
	free(ring);
}
