/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishing indices, notifying the other side, and waiting for its notifications.
 */
#include "private.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Microseconds between two looks at a ring that nobody wakes us for. */
enum { NAP = 100 };
/* Calls of ringway_sync() without anything to publish until the descriptors are looked at. */
enum { IDLE_SYNCS = 1024 };

/* Publishes our index; whether the other side asked to be notified when it passes what it has now passed. */
static bool publish(struct ringway *ring, struct side *side, int ours)
{
	uint32_t old = side->published, at;

	if (side->next == old)
		return false;
	side->published = side->next;
	/* A full barrier: the other side sets its flag, then reads the index. */
	__atomic_store_n(cell(ring, side->ring, ours, INDEX), side->next, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(cell(ring, side->ring, 1 - ours, WAKE), __ATOMIC_SEQ_CST))
		return false;
	at = __atomic_load_n(cell(ring, side->ring, 1 - ours, WAKE_AT), __ATOMIC_RELAXED);
	return side->next - at - 1 < side->next - old;
}

static void set_wake(struct ringway *ring, struct side *side, int ours, uint32_t at, uint32_t wake)
{
	__atomic_store_n(cell(ring, side->ring, ours, WAKE_AT), at, __ATOMIC_RELAXED);
	__atomic_store_n(cell(ring, side->ring, ours, WAKE), wake, __ATOMIC_SEQ_CST);
}

static void notify(struct ringway *ring)
{
	uint64_t one = 1;

	if (ring->registers)
		__atomic_store_n((uint32_t *)(ring->registers + DOORBELL), 1, __ATOMIC_RELEASE);
	else if (write(ring->kick, &one, sizeof one) < 0)
		/* The counter is full: the other side is notified already. */
		return;
}

int ringway_watch(struct ringway *ring, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (ring->fd < 0)
		ring->fd = epoll_create1(EPOLL_CLOEXEC);
	if (ring->fd < 0 || epoll_ctl(ring->fd, EPOLL_CTL_ADD, fd, &event))
		return ringway_fail(errno, "watching the ring's descriptors");
	return 0;
}

/* Takes the events of the descriptors, so that ringway_fd() is not readable any more unless the ring is closed. */
static void drain_events(struct ringway *ring)
{
	struct epoll_event events[2];
	int count = ring->fd < 0 ? 0 : epoll_wait(ring->fd, events, 2, 0);

	ring->armed = false;
	ring->idle_syncs = 0;
	/* The socket only becomes readable when the ring is closed, or for a pipe's new end. */
	for (int at = 0; at < count; at++)
		ring->hung_up |= events[at].data.fd == ring->socket;
}

static int check_open(const struct ringway *ring)
{
	if (ring->hung_up || __atomic_load_n((uint32_t *)(ring->memory + CLOSED), __ATOMIC_ACQUIRE))
		return ringway_fail(ECONNRESET, "the ring is closed");
	return 0;
}

int ringway_sync(struct ringway *ring)
{
	uint32_t tx_before = ring->tx.published, rx_before = ring->rx.published;
	bool tx = publish(ring, &ring->tx, PRODUCER), rx = publish(ring, &ring->rx, CONSUMER);
	bool idle = ring->tx.published == tx_before && ring->rx.published == rx_before;

	if (tx || rx)
		notify(ring);
	if (ring->armed || (idle && ++ring->idle_syncs >= IDLE_SYNCS))
		drain_events(ring);
	return check_open(ring);
}

unsigned ringway_unsent(struct ringway *ring)
{
	uint32_t free_slots;

	return ringway_room(ring, ring->tx.slots + 1, &free_slots) ? 0 : ring->tx.slots - free_slots;
}

/* Those of `events` that are there. */
static int look(struct ringway *ring, int events)
{
	uint32_t count;
	int found = 0;

	if (events & RINGWAY_RX) {
		if (ringway_available(ring, 1, &count))
			return -1;
		found |= count ? RINGWAY_RX : 0;
	}
	if (events & RINGWAY_TX) {
		if (ringway_room(ring, ringway_most_slots(ring), &count))
			return -1;
		found |= count >= ringway_most_slots(ring) ? RINGWAY_TX : 0;
	}
	return found;
}

/* Asks for notifications, or for none. */
static void request(struct ringway *ring, int events, uint32_t wake)
{
	if (events & RINGWAY_RX)
		set_wake(ring, &ring->rx, CONSUMER, ring->rx.next, wake);
	if (events & RINGWAY_TX)
		set_wake(ring, &ring->tx, PRODUCER, ring->tx.next + ringway_most_slots(ring) - ring->tx.slots - 1, wake);
}

/* Asks for a notification unless one of `events` is there already: 1. */
static int arm(struct ringway *ring, int events)
{
	int found;

	request(ring, events, 1);
	found = look(ring, events);
	if (found)
		request(ring, events, 0);
	return found < 0 ? -1 : found != 0;
}

int ringway_arm(struct ringway *ring, int events)
{
	int found;

	if (ringway_sync(ring))
		return -1;
	found = arm(ring, events);
	ring->armed = !found;
	return found;
}

int ringway_fd(const struct ringway *ring)
{
	return ring->fd;
}

/* Sleeps until we are notified, at most until `end` if that is not negative. */
static int sleep_until(struct ringway *ring, int64_t end)
{
	struct pollfd poll_fd = { .fd = ring->fd, .events = POLLIN };
	int64_t left = end < 0 ? -1 : end - now();
	struct timespec time;

	if (end >= 0 && left < 0)
		left = 0;
	if (ring->fd < 0 && (left < 0 || left > NAP * 1000))
		left = NAP * 1000;
	time.tv_sec = left / 1000000000;
	time.tv_nsec = left % 1000000000;
	if (ppoll(&poll_fd, 1, left < 0 ? NULL : &time, NULL) < 0 && errno != EINTR)
		return ringway_fail(errno, "poll");
	drain_events(ring);
	return 0;
}

int ringway_poll(struct ringway *ring, int events, int timeout)
{
	int64_t end = timeout < 0 ? -1 : now() + timeout * INT64_C(1000000);
	int found;

	if (ringway_sync(ring))
		return -1;
	for (;;) {
		found = look(ring, events);
		if (found || (end >= 0 && now() >= end))
			return found;
		found = arm(ring, events);
		if (found < 0)
			return -1;
		if (!found && sleep_until(ring, end))
			return -1;
		request(ring, events, 0);
		if (check_open(ring))
			return -1;
	}
}
