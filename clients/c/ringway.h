/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of Ringway for programs in C: to a port of kind `ring` or one end of a `pipe`, by the path of its socket, and in a
 * guest to a port of kind `ring-pci`, by the folder of its PCI device (/sys/bus/pci/devices/ADDRESS).
 *
 * A ring belongs to one thread at a time. Calls that fail return NULL or -1, set errno, and leave a text for people in
 * ringway_error().
 */
#ifndef RINGWAY_H
#define RINGWAY_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ringway;

/* What to wait for, and what came. */
#define RINGWAY_RX 1 /* a frame to receive */
#define RINGWAY_TX 2 /* room to send the longest frame that the ring can carry */

/* Opens a ring, by the path of a port's socket, or by SOCKET:PORT with the socket of a switch, on which a port is made for
 * this program. Waits until the port has no other program, and on a pipe until its other end is there. After a second it
 * says so once, on standard error unless the environment has RINGWAY_QUIET. */
struct ringway *ringway_open(const char *path);

/* Has such messages passed to a function instead; NULL: to nobody. For all rings of the program; RINGWAY_QUIET does not
 * matter then. */
void ringway_tell(void (*function)(const char *what));

/* Closes a ring; frames that its port has not taken yet are lost. */
void ringway_close(struct ringway *ring);

/* Copies a frame into the ring: 1, or 0 if there is no room now. The other side sees it after ringway_sync(). A frame that
 * is longer than the ring can carry fails with EMSGSIZE. */
int ringway_tx(struct ringway *ring, const void *frame, size_t len);

/* Copies the next frame to `frame`, at most `size` bytes, and returns its whole length; 0: there is none. Its slots go back
 * with ringway_sync(). */
ssize_t ringway_rx(struct ringway *ring, void *frame, size_t size);

/* The next frame where it is, in the ring's memory: 1, and *frame and *len say where; 0: there is none; 2: it takes several
 * slots, so that only ringway_rx() can get it. The bytes are the program's until the next ringway_sync(), or a call that
 * syncs. The other side can change them at any time: a program that checks bytes and uses them later copies them first. */
int ringway_rx_view(struct ringway *ring, const void **frame, size_t *len);

/* The memory of the next frame to send, of *size bytes; NULL with EAGAIN: there is no room now. ringway_tx_commit() sends
 * what was written there, as ringway_tx() does; a frame of more than *size bytes needs ringway_tx(). */
void *ringway_tx_view(struct ringway *ring, size_t *size);
int ringway_tx_commit(struct ringway *ring, size_t len);

/* Publishes what was sent and received since the last call, and notifies the other side if it asked for that. Fails with
 * ECONNRESET if the ring is closed: open it again. One call for many frames. A port that ended without closing its rings is
 * noticed after sleeping, and by a program that never sleeps within 1024 calls that publish nothing. */
int ringway_sync(struct ringway *ring);

/* Syncs, then waits at most `timeout` milliseconds (-1: without end) for one of `events`; returns those that came, 0 if none
 * did. A PCI device that vfio-pci does not have can't interrupt a program: then it looks every 100 us. */
int ringway_poll(struct ringway *ring, int events, int timeout);

/* For programs with a poll() of their own: ringway_arm() syncs, asks to be notified of `events` and returns 0; 1: one is
 * there already. Then poll ringway_fd() for POLLIN. It is readable until the next ringway_sync() or ringway_arm(), and is not
 * to be read. It is readable too when the ring is closed: then these calls fail with ECONNRESET. ringway_fd() is -1 for a
 * PCI device that vfio-pci does not have. */
int ringway_arm(struct ringway *ring, int events);
int ringway_fd(const struct ringway *ring);

/* Frames sent that the other side has not taken yet, in slots. */
unsigned ringway_unsent(struct ringway *ring);

/* Longest frame in bytes that the ring can carry. */
size_t ringway_longest(const struct ringway *ring);

/* Why the last call of this thread failed. */
const char *ringway_error(void);

#ifdef __cplusplus
}
#endif
#endif
