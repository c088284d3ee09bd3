/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory and the messages are described in docs/programs.md, the PCI device in docs/nic.md. The other side is not
 * trusted: each of its indices and slots is read once into a local, and checked.
 */
#define _GNU_SOURCE
#include "ringway.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is little-endian, and so must this machine be"
#endif

enum { FRAGMENTS = 64, MOREFRAG = 0x20, PAGE = 4096, CELLS = 1024, CELL = 128, CLOSED = 512 };
enum { REGISTERS = 4096, DOORBELL = 0x0c, RESET = 0x80, STATUS = 0x84 };
enum { PRODUCER, CONSUMER };
enum { INDEX, WAKE, WAKE_AT };
/* Microseconds between two looks at a ring that nobody wakes us for. */
enum { NAP = 100 };
/* Calls of ringway_sync() without anything to publish until the descriptors are looked at. */
enum { IDLE_SYNCS = 1024 };
/* Milliseconds that ringway_open() waits before it says for what. */
enum { UNANNOUNCED = 1000 };

static const char MAGIC[8] = "Ringway";

/* The first bytes of the memory. */
struct header {
	char magic[8];
	uint32_t version, features, kind, slots[2], slot_size, stride, buffers, largest, reserved;
	uint64_t slots_at[2], buffers_at, bytes;
};

struct slot {
	uint16_t buf_idx, len, flags;
	uint8_t offload[10];
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
	/* A device's. */
	uint8_t *registers;
	size_t registers_size;
	int vfio[3];
};

static __thread char text[200];

const char *ringway_error(void)
{
	return text;
}

static int fail(int error, const char *what)
{
	if (error)
		snprintf(text, sizeof text, "%.120s: %s", what, strerror(error));
	else
		snprintf(text, sizeof text, "%.199s", what);
	errno = error ? error : EPROTO;
	return -1;
}

static int broken(const char *what)
{
	return fail(0, what);
}

/* Memory */

static uint32_t *cell(const struct ringway *ring, int number, int side, int word)
{
	return (uint32_t *)(ring->memory + CELLS + number * 2 * CELL + side * CELL) + word;
}

static uint64_t *slot_at(const struct ringway *ring, int number, uint32_t index)
{
	index &= ring->header.slots[number] - 1;
	return (uint64_t *)(ring->memory + ring->header.slots_at[number] + (uint64_t)index * sizeof(struct slot));
}

static struct slot read_slot(const struct ringway *ring, int number, uint32_t index)
{
	uint64_t *at = slot_at(ring, number, index), words[2];
	struct slot slot;

	words[0] = __atomic_load_n(at, __ATOMIC_RELAXED);
	words[1] = __atomic_load_n(at + 1, __ATOMIC_RELAXED);
	memcpy(&slot, words, sizeof slot);
	return slot;
}

static void write_slot(const struct ringway *ring, int number, uint32_t index, struct slot slot)
{
	uint64_t *at = slot_at(ring, number, index), words[2];

	memcpy(words, &slot, sizeof slot);
	__atomic_store_n(at, words[0], __ATOMIC_RELAXED);
	__atomic_store_n(at + 1, words[1], __ATOMIC_RELAXED);
}

/* The buffer of a slot; NULL: there is none of that number or length. */
static uint8_t *buffer(const struct ringway *ring, struct slot slot)
{
	if (slot.buf_idx >= ring->header.buffers || slot.len > ring->header.slot_size)
		return NULL;
	return ring->memory + ring->header.buffers_at + (uint64_t)slot.buf_idx * ring->header.stride;
}

static uint64_t pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

/* Whether the header is that of a ring within the mapped memory: each number is checked, and each offset computed. */
static bool is_valid(const struct header *h, size_t mapped)
{
	uint64_t stride = ((h->slot_size / 64) | 1) * 64, second, at;

	for (int ring = 0; ring < 2; ring++)
		if (h->slots[ring] < 64 || h->slots[ring] > 4096 || (h->slots[ring] & (h->slots[ring] - 1)))
			return false;
	if (h->slot_size < 64 || h->slot_size > 32768 || h->slot_size % 64 || h->stride != stride)
		return false;
	if (h->buffers < h->slots[0] + h->slots[1] || h->buffers > 65536)
		return false;
	second = PAGE + (uint64_t)h->slots[0] * sizeof(struct slot);
	at = pages(second + (uint64_t)h->slots[1] * sizeof(struct slot));
	return h->slots_at[0] == PAGE && h->slots_at[1] == second && h->buffers_at == at
		&& h->bytes == pages(at + h->buffers * stride) && h->bytes <= mapped;
}

/* Takes the mapped memory over. `end`: of a pipe. */
static int attach(struct ringway *ring, uint32_t end)
{
	struct header *h = &ring->header;
	bool second;

	memcpy(h, ring->memory, sizeof *h);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (memcmp(h->magic, MAGIC, sizeof MAGIC))
		return broken("the memory is not a ring");
	if (h->version != 1)
		return broken("the ring has another version: use the library of the same release");
	if (!is_valid(h, ring->mapped))
		return broken("the ring's memory is smaller than its header says");
	second = h->kind != 0 && end == 1;
	ring->tx.ring = second ? 1 : 0;
	ring->rx.ring = 1 - ring->tx.ring;
	ring->tx.slots = h->slots[ring->tx.ring];
	ring->rx.slots = h->slots[ring->rx.ring];
	ring->tx.next = __atomic_load_n(cell(ring, ring->tx.ring, PRODUCER, INDEX), __ATOMIC_ACQUIRE);
	ring->tx.published = ring->tx.next;
	ring->tx.peer = ring->tx.next - ring->tx.slots;
	ring->rx.next = __atomic_load_n(cell(ring, ring->rx.ring, CONSUMER, INDEX), __ATOMIC_ACQUIRE);
	ring->rx.published = ring->rx.peer = ring->rx.next;
	return 0;
}

/* Indices */

/* Free slots, of which `wanted` are enough to know. */
static int room(struct ringway *ring, uint32_t wanted, uint32_t *free_slots)
{
	struct side *tx = &ring->tx;
	uint32_t peer;

	*free_slots = tx->slots - (tx->next - tx->peer);
	if (*free_slots >= wanted)
		return 0;
	peer = __atomic_load_n(cell(ring, tx->ring, CONSUMER, INDEX), __ATOMIC_ACQUIRE);
	if (peer - tx->peer > tx->published - tx->peer)
		return broken("the other side's index moved by more than the ring's slots");
	tx->peer = peer;
	*free_slots = tx->slots - (tx->next - peer);
	return 0;
}

/* Filled slots, of which `wanted` are enough to know. */
static int available(struct ringway *ring, uint32_t wanted, uint32_t *filled)
{
	struct side *rx = &ring->rx;
	uint32_t peer;

	*filled = rx->peer - rx->next;
	if (*filled >= wanted)
		return 0;
	peer = __atomic_load_n(cell(ring, rx->ring, PRODUCER, INDEX), __ATOMIC_ACQUIRE);
	if (peer - rx->peer > rx->slots - (rx->peer - rx->published))
		return broken("the other side's index moved by more than the ring's slots");
	rx->peer = peer;
	*filled = peer - rx->next;
	return 0;
}

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

static uint32_t slots_for(const struct ringway *ring, size_t len)
{
	return len ? (uint32_t)((len + ring->header.slot_size - 1) / ring->header.slot_size) : 1;
}

static uint32_t most_slots(const struct ringway *ring)
{
	return ring->tx.slots < FRAGMENTS ? ring->tx.slots : FRAGMENTS;
}

size_t ringway_longest(const struct ringway *ring)
{
	return (size_t)most_slots(ring) * ring->header.slot_size;
}

/* Frames */

int ringway_tx(struct ringway *ring, const void *frame, size_t len)
{
	const uint8_t *from = frame;
	uint32_t slots, free_slots;

	if (len > ringway_longest(ring))
		return fail(EMSGSIZE, "the frame");
	slots = slots_for(ring, len);
	if (room(ring, slots, &free_slots))
		return -1;
	if (free_slots < slots)
		return 0;
	for (uint32_t ahead = 0; ahead < slots; ahead++) {
		size_t piece = len < ring->header.slot_size ? len : ring->header.slot_size;
		struct slot slot = {
			.buf_idx = read_slot(ring, ring->tx.ring, ring->tx.next + ahead).buf_idx,
			.len = (uint16_t)piece,
			.flags = ahead + 1 < slots ? MOREFRAG : 0,
		};
		uint8_t *to = buffer(ring, slot);

		if (!to)
			return broken("the other side used a buffer number that the ring doesn't have");
		memcpy(to, from, piece);
		write_slot(ring, ring->tx.ring, ring->tx.next + ahead, slot);
		from += piece;
		len -= piece;
	}
	ring->tx.next += slots;
	return 1;
}

ssize_t ringway_rx(struct ringway *ring, void *frame, size_t size)
{
	uint32_t filled, most, ahead = 0;
	size_t whole = 0;
	struct slot slot;

	if (available(ring, 1, &filled))
		return -1;
	if (!filled)
		return 0;
	do {
		const uint8_t *from;
		size_t piece;

		slot = read_slot(ring, ring->rx.ring, ring->rx.next + ahead);
		from = buffer(ring, slot);
		if (!from)
			return broken("the other side used a buffer number that the ring doesn't have");
		piece = whole >= size ? 0 : size - whole;
		memcpy((uint8_t *)frame + (piece ? whole : 0), from, piece < slot.len ? piece : slot.len);
		whole += slot.len;
		ahead++;
		if (!(slot.flags & MOREFRAG))
			break;
		if (ahead == 1 && available(ring, FRAGMENTS, &filled))
			return -1;
		most = filled < FRAGMENTS ? filled : FRAGMENTS;
	} while (ahead < most);
	if (slot.flags & MOREFRAG)
		return broken("the other side published half a frame");
	ring->rx.next += ahead;
	return (ssize_t)whole;
}

int ringway_rx_view(struct ringway *ring, const void **frame, size_t *len)
{
	struct slot slot;
	uint32_t filled;

	if (available(ring, 1, &filled))
		return -1;
	if (!filled)
		return 0;
	slot = read_slot(ring, ring->rx.ring, ring->rx.next);
	if (slot.flags & MOREFRAG)
		return 2;
	*frame = buffer(ring, slot);
	*len = slot.len;
	if (!*frame)
		return broken("the other side used a buffer number that the ring doesn't have");
	ring->rx.next++;
	return 1;
}

void *ringway_tx_view(struct ringway *ring, size_t *size)
{
	struct slot slot = { 0 };
	uint32_t free_slots;
	void *at;

	if (room(ring, 1, &free_slots))
		return NULL;
	if (!free_slots) {
		fail(EAGAIN, "the ring");
		return NULL;
	}
	slot.buf_idx = read_slot(ring, ring->tx.ring, ring->tx.next).buf_idx;
	at = buffer(ring, slot);
	if (!at)
		broken("the other side used a buffer number that the ring doesn't have");
	*size = ring->header.slot_size;
	return at;
}

int ringway_tx_commit(struct ringway *ring, size_t len)
{
	struct slot slot = { .len = (uint16_t)len };
	uint32_t free_slots;

	if (len > ring->header.slot_size)
		return fail(EMSGSIZE, "the frame");
	if (room(ring, 1, &free_slots))
		return -1;
	if (!free_slots)
		return 0;
	slot.buf_idx = read_slot(ring, ring->tx.ring, ring->tx.next).buf_idx;
	write_slot(ring, ring->tx.ring, ring->tx.next++, slot);
	return 1;
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

static int watch(struct ringway *ring, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (ring->fd < 0)
		ring->fd = epoll_create1(EPOLL_CLOEXEC);
	if (ring->fd < 0 || epoll_ctl(ring->fd, EPOLL_CTL_ADD, fd, &event))
		return fail(errno, "watching the ring's descriptors");
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
		return fail(ECONNRESET, "the ring is closed");
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

	return room(ring, ring->tx.slots + 1, &free_slots) ? 0 : ring->tx.slots - free_slots;
}

/* Those of `events` that are there. */
static int look(struct ringway *ring, int events)
{
	uint32_t count;
	int found = 0;

	if (events & RINGWAY_RX) {
		if (available(ring, 1, &count))
			return -1;
		found |= count ? RINGWAY_RX : 0;
	}
	if (events & RINGWAY_TX) {
		if (room(ring, most_slots(ring), &count))
			return -1;
		found |= count >= most_slots(ring) ? RINGWAY_TX : 0;
	}
	return found;
}

/* Asks for notifications, or for none. */
static void request(struct ringway *ring, int events, uint32_t wake)
{
	if (events & RINGWAY_RX)
		set_wake(ring, &ring->rx, CONSUMER, ring->rx.next, wake);
	if (events & RINGWAY_TX)
		set_wake(ring, &ring->tx, PRODUCER, ring->tx.next + most_slots(ring) - ring->tx.slots - 1, wake);
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

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
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
		return fail(errno, "poll");
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

/* Over a socket */

/* Receives the reply with its descriptors; those that are surplus are closed. */
static int receive(int socket, uint8_t *reply, size_t size, int fds[3])
{
	size_t filled = 0;
	int count = 0;

	while (filled < size) {
		union { char bytes[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } control;
		struct iovec part = { reply + filled, size - filled };
		struct msghdr message = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control,
		};
		ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return fail(got ? errno : ECONNRESET, "the port's socket");
		filled += (size_t)got;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			for (size_t at = 0; at < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); at++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + at * sizeof fd, sizeof fd);
				if (count < 3)
					fds[count++] = fd;
				else
					close(fd);
			}
		}
	}
	return 0;
}

static int map_file(struct ringway *ring, int fd)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	void *at;

	/* Memory that can shrink would end this program by a signal. */
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return broken("the ring's memory is not sealed");
	if (fstat(fd, &stat) || stat.st_size < PAGE)
		return broken("the ring's memory is too small");
	at = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return fail(errno, "mapping the ring");
	ring->memory = at;
	ring->mapped = (size_t)stat.st_size;
	return 0;
}

static void say(const char *what)
{
	if (!getenv("RINGWAY_QUIET"))
		fprintf(stderr, "%s\n", what);
}

static void (*tell)(const char *what) = say;

void ringway_tell(void (*function)(const char *what))
{
	__atomic_store_n(&tell, function, __ATOMIC_RELEASE);
}

/* Says for what the program waits, if there is no answer for a while. */
static void tell_late(int socket, const char *path)
{
	struct pollfd poll_fd = { .fd = socket, .events = POLLIN };
	int64_t end = now() + UNANNOUNCED * INT64_C(1000000), left;
	void (*function)(const char *what);
	char what[400];

	while ((left = end - now()) > 0)
		if (poll(&poll_fd, 1, (int)(left / 1000000) + 1) > 0)
			return;
	function = __atomic_load_n(&tell, __ATOMIC_ACQUIRE);
	if (!function)
		return;
	snprintf(what, sizeof what, "ringway: waits for the ring of %.120s: connected, but it gives none; another program may "
		"have it, or a pipe's other end is missing: `ringway ps` shows it", path);
	function(what);
}

static int open_socket(struct ringway *ring, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	uint8_t hello[40] = { 0 }, reply[256];
	uint32_t version = 1, end, len;
	int fds[3] = { -1, -1, -1 }, done;

	if (strlen(path) >= sizeof address.sun_path)
		return fail(ENAMETOOLONG, path);
	strcpy(address.sun_path, path);
	ring->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ring->socket < 0 || connect(ring->socket, (struct sockaddr *)&address, sizeof address))
		return fail(errno, path);
	/* Zeros leave all sizes to Ringway. */
	memcpy(hello, MAGIC, sizeof MAGIC);
	memcpy(hello + 8, &version, sizeof version);
	if (send(ring->socket, hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
		return fail(errno, path);
	tell_late(ring->socket, path);
	done = receive(ring->socket, reply, sizeof reply, fds);
	ring->kick = fds[1];
	ring->call = fds[2];
	if (done)
		goto out;
	memcpy(&version, reply + 8, sizeof version);
	memcpy(&end, reply + 12, sizeof end);
	memcpy(&len, reply + 16, sizeof len);
	done = -1;
	if (memcmp(reply, MAGIC, sizeof MAGIC) || version != 1) {
		broken("the socket is not a ring's, or of another version");
	} else if (end == UINT32_MAX) {
		int shown = len < sizeof reply - 20 ? (int)len : (int)sizeof reply - 20;

		snprintf(text, sizeof text, "the ring was refused: %.*s", shown, (char *)reply + 20);
		errno = EBUSY;
	} else if (fds[2] < 0) {
		broken("the reply has too few descriptors");
	} else {
		fcntl(ring->kick, F_SETFL, O_NONBLOCK);
		fcntl(ring->call, F_SETFL, O_NONBLOCK);
		done = map_file(ring, fds[0]) || attach(ring, end) || watch(ring, ring->call, EPOLLIN | EPOLLET)
			|| watch(ring, ring->socket, EPOLLIN | EPOLLRDHUP) ? -1 : 0;
	}
out:
	if (fds[0] >= 0)
		close(fds[0]);
	return done;
}

/* In a PCI device */

static void *map_device(int fd, uint64_t offset, size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	return at == MAP_FAILED ? NULL : at;
}

/* The last part of what a link in the device's folder points to. */
static int link_name(const char *path, const char *link, char *name, size_t size)
{
	char from[512], to[512];
	const char *slash;
	ssize_t len;

	snprintf(from, sizeof from, "%s/%s", path, link);
	len = readlink(from, to, sizeof to - 1);
	if (len < 0)
		return -1;
	to[len] = 0;
	slash = strrchr(to, '/');
	snprintf(name, size, "%.*s", (int)size - 1, slash ? slash + 1 : to);
	return 0;
}

static int read_number(const char *path, const char *file, unsigned *number)
{
	char name[512];
	FILE *from;
	int got;

	snprintf(name, sizeof name, "%s/%s", path, file);
	from = fopen(name, "re");
	if (!from)
		return fail(errno, name);
	got = fscanf(from, "%x", number);
	fclose(from);
	return got == 1 ? 0 : fail(EINVAL, name);
}

/* Maps a BAR by the device's folder. */
static uint8_t *map_resource(const char *path, int bar, size_t *size)
{
	char name[512];
	struct stat stat;
	uint8_t *at = NULL;
	int fd;

	snprintf(name, sizeof name, "%s/resource%d", path, bar);
	fd = open(name, O_RDWR | O_SYNC | O_CLOEXEC);
	if (fd >= 0 && !fstat(fd, &stat)) {
		*size = (size_t)stat.st_size;
		at = map_device(fd, 0, *size);
	}
	if (!at)
		fail(errno, name);
	if (fd >= 0)
		close(fd);
	return at;
}

static uint8_t *map_region(int device, uint32_t bar, size_t *size)
{
	struct vfio_region_info info = { .argsz = sizeof info, .index = bar };
	uint8_t *at = NULL;

	if (!ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info)) {
		*size = info.size;
		at = map_device(device, info.offset, *size);
	}
	if (!at)
		fail(errno, "mapping the device's memory");
	return at;
}

/* Memory accesses and bus mastering, without which there is no interrupt. */
static int become_master(int device)
{
	struct vfio_region_info info = { .argsz = sizeof info, .index = VFIO_PCI_CONFIG_REGION_INDEX };
	uint16_t command;
	off_t at;

	if (ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info))
		return -1;
	at = (off_t)info.offset + 4;
	if (pread(device, &command, sizeof command, at) != sizeof command)
		return -1;
	command |= 6;
	return pwrite(device, &command, sizeof command, at) == sizeof command ? 0 : -1;
}

/* Opens the device by vfio-pci, with an eventfd for its interrupt. */
static int open_vfio(struct ringway *ring, const char *path)
{
	union { struct vfio_irq_set set; char bytes[sizeof(struct vfio_irq_set) + sizeof(int)]; } irq = { 0 };
	char group[64], name[512], *real;
	const char *address;
	int iommu = VFIO_TYPE1_IOMMU;

	if (link_name(path, "iommu_group", group, sizeof group))
		return fail(errno, "the device's IOMMU group");
	ring->vfio[0] = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	snprintf(name, sizeof name, "/dev/vfio/%s", group);
	ring->vfio[1] = open(name, O_RDWR | O_CLOEXEC);
	if (ring->vfio[1] < 0) {
		snprintf(name, sizeof name, "/dev/vfio/noiommu-%s", group);
		ring->vfio[1] = open(name, O_RDWR | O_CLOEXEC);
		iommu = VFIO_NOIOMMU_IOMMU;
	}
	if (ring->vfio[0] < 0 || ring->vfio[1] < 0)
		return fail(errno, "the device's IOMMU group");
	if (ioctl(ring->vfio[1], VFIO_GROUP_SET_CONTAINER, &ring->vfio[0])
	    || ioctl(ring->vfio[0], VFIO_SET_IOMMU, iommu))
		return fail(errno, "the device's IOMMU");
	real = realpath(path, NULL);
	if (!real)
		return fail(errno, path);
	address = strrchr(real, '/') + 1;
	ring->vfio[2] = ioctl(ring->vfio[1], VFIO_GROUP_GET_DEVICE_FD, address);
	free(real);
	if (ring->vfio[2] < 0)
		return fail(errno, "the device");
	ring->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	irq.set.argsz = sizeof(struct vfio_irq_set) + sizeof(int);
	irq.set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
	irq.set.index = VFIO_PCI_MSIX_IRQ_INDEX;
	irq.set.count = 1;
	memcpy(irq.set.data, &ring->call, sizeof(int));
	if (ring->call < 0 || become_master(ring->vfio[2]) || ioctl(ring->vfio[2], VFIO_DEVICE_SET_IRQS, &irq))
		return fail(errno, "the device's interrupt");
	return watch(ring, ring->call, EPOLLIN | EPOLLET);
}

/* Lets the device be accessed, if no driver does. */
static void enable(const char *path)
{
	unsigned enabled = 1;
	char name[512];
	FILE *to;

	if (read_number(path, "enable", &enabled) || enabled)
		return;
	snprintf(name, sizeof name, "%s/enable", path);
	to = fopen(name, "we");
	if (to) {
		fputs("1", to);
		fclose(to);
	}
}

static int open_device(struct ringway *ring, const char *path)
{
	unsigned vendor, device;
	char driver[64] = "";
	static const char OTHER[] = "the PCI device is not one of a port of kind ring-pci";
	bool by_vfio;
	size_t *size = &ring->registers_size;

	if (read_number(path, "vendor", &vendor) || read_number(path, "device", &device))
		return -1;
	if (vendor != 0x1af4 || device != 0x1110)
		return broken(OTHER);
	link_name(path, "driver", driver, sizeof driver);
	by_vfio = !strcmp(driver, "vfio-pci");
	if (by_vfio ? open_vfio(ring, path) : (enable(path), 0))
		return -1;
	ring->registers = by_vfio ? map_region(ring->vfio[2], 0, size) : map_resource(path, 0, size);
	if (!ring->registers)
		return -1;
	/* Another device of this number has other registers, to which ringway_close() must not write. */
	if (*size < REGISTERS) {
		munmap(ring->registers, *size);
		ring->registers = NULL;
		return broken(OTHER);
	}
	__atomic_store_n((uint32_t *)(ring->registers + RESET), 1, __ATOMIC_RELEASE);
	if (__atomic_load_n((uint32_t *)(ring->registers + STATUS), __ATOMIC_ACQUIRE) != 1)
		return broken("the PCI device made no ring: is its port up?");
	ring->memory = by_vfio ? map_region(ring->vfio[2], 2, &ring->mapped) : map_resource(path, 2, &ring->mapped);
	return ring->memory ? attach(ring, 0) : -1;
}

struct ringway *ringway_open(const char *path)
{
	struct ringway *ring = calloc(1, sizeof *ring);
	struct stat stat_of;
	int done;

	if (!ring) {
		fail(ENOMEM, path);
		return NULL;
	}
	ring->socket = ring->kick = ring->call = ring->fd = -1;
	ring->vfio[0] = ring->vfio[1] = ring->vfio[2] = -1;
	if (stat(path, &stat_of))
		done = fail(errno, path);
	else
		done = S_ISDIR(stat_of.st_mode) ? open_device(ring, path) : open_socket(ring, path);
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
