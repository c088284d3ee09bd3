/* Declarations of netmap's ABI for the programs of the tests, and numbered frames. A program prints what failed, and exits
 * with 1. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct slot { uint32_t buf_idx; uint16_t len, flags; uint64_t ptr; };
struct ring {
	int64_t buf_ofs; uint32_t num_slots, buf_size; uint16_t id, dir; uint32_t head, cur, tail, flags;
	struct timeval ts; uint64_t mask, align; uint8_t sem[128] __attribute__((aligned(128))); struct slot slot[];
};
struct interface {
	char name[16]; uint32_t version, flags, tx_rings, rx_rings, bufs_head, host_tx, host_rx, spare[3]; int64_t ring_ofs[4];
};
struct old {
	char name[16]; uint32_t version, offset, memsize, tx_slots, rx_slots; uint16_t tx_rings, rx_rings, ringid, cmd;
	uint16_t arg1, arg2; uint32_t arg3, flags, spare;
};
struct option { uint64_t next; uint32_t type, status; uint64_t size; };
struct header { uint16_t version, type; uint32_t reserved; char name[64]; uint64_t options, body; };
struct reg {
	uint64_t offset, memsize; uint32_t tx_slots, rx_slots; uint16_t tx_rings, rx_rings, host_tx, host_rx, mem_id, ringid;
	uint32_t mode, extra; uint64_t flags;
};
struct info { uint64_t memsize; uint32_t tx_slots, rx_slots; uint16_t tx_rings, rx_rings, host_tx, host_rx, mem_id, pad[3]; };

#define TXSYNC _IO('i', 148)
#define RXSYNC _IO('i', 149)
#define CONTROL _IOWR('i', 151, struct header)
#define REGISTER _IOWR('i', 146, struct old)
#define INFO _IOWR('i', 145, struct old)
#define CHANGED 1
#define INDIRECT 0x10
#define MOREFRAG 0x20
#define BATCH 32

#define CHECK(what) do { if (!(what)) { \
	printf("line %d: %s (errno %s)\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

struct port { int fd; struct interface *interface; struct ring *tx, *rx; const char *wait; };

static int new_request(int fd, const char *name, struct reg *reg, struct option *option)
{
	struct header header = { .version = 14, .type = 1, .body = (uintptr_t)reg, .options = (uintptr_t)option };
	snprintf(header.name, sizeof header.name, "%s", name);
	return ioctl(fd, CONTROL, &header);
}

static int old_request(int fd, const char *name, struct old *old)
{
	snprintf(old->name, sizeof old->name, "%s", name);
	return ioctl(fd, REGISTER, old);
}

static struct port opened(const char *name, const char *api, uint32_t extra)
{
	struct port port = { .fd = open("/dev/netmap", O_RDWR) };
	uint64_t size, offset;
	CHECK(port.fd >= 0);
	if (strcmp(api, "new") == 0) {
		struct reg reg = { .mode = 1, .extra = extra };
		CHECK(new_request(port.fd, name, &reg, NULL) == 0);
		CHECK(reg.tx_rings == 1 && reg.rx_rings == 1 && reg.mem_id > 1 && reg.extra == extra);
		size = reg.memsize, offset = reg.offset;
	} else {
		struct old old = { .version = atoi(api), .arg3 = extra };
		CHECK(old_request(port.fd, name, &old) == 0);
		CHECK(old.version == 14 && old.tx_rings == 1 && old.arg2 > 1 && old.arg3 == extra);
		size = old.memsize, offset = old.offset;
	}
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, port.fd, 0);
	CHECK(memory != MAP_FAILED);
	port.interface = (struct interface *)(memory + offset);
	CHECK(port.interface->ring_ofs[1] == 0 && port.interface->ring_ofs[3] == 0);
	port.tx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[0]);
	port.rx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[1 + port.interface->host_tx]);
	CHECK(port.tx->dir == 0 && port.rx->dir == 1 && port.tx->tail == port.tx->num_slots - 1 && port.rx->tail == 0);
	return port;
}

static uint8_t *buffer(struct ring *ring, uint32_t index)
{
	return (uint8_t *)ring + ring->buf_ofs + (size_t)index * ring->buf_size;
}

static uint32_t next(struct ring *ring, uint32_t at)
{
	return at + 1 == ring->num_slots ? 0 : at + 1;
}

/* Waits, by one of the calls, and says what is ready. */
static int wait_for(struct port *port, int events)
{
	if (strcmp(port->wait, "select") == 0) {
		fd_set read, write;
		struct timeval time = { .tv_sec = 20 };
		FD_ZERO(&read);
		FD_ZERO(&write);
		if (events & POLLIN)
			FD_SET(port->fd, &read);
		if (events & POLLOUT)
			FD_SET(port->fd, &write);
		CHECK(select(port->fd + 1, &read, &write, NULL, &time) > 0);
		return (FD_ISSET(port->fd, &read) ? POLLIN : 0) | (FD_ISSET(port->fd, &write) ? POLLOUT : 0);
	}
	if (strcmp(port->wait, "epoll") == 0) {
		static int set = -1;
		struct epoll_event event = { .events = events, .data.u64 = 77 };
		if (set < 0) {
			CHECK((set = epoll_create1(0)) >= 0);
			CHECK(epoll_ctl(set, EPOLL_CTL_MOD, port->fd, &event) == -1 && errno == ENOENT);
			CHECK(epoll_ctl(set, EPOLL_CTL_ADD, port->fd, &event) == 0);
			CHECK(epoll_ctl(set, EPOLL_CTL_ADD, port->fd, &event) == -1 && errno == EEXIST);
		}
		CHECK(epoll_ctl(set, EPOLL_CTL_MOD, port->fd, &event) == 0);
		/* By one call and the other. */
		static int turn;
		const struct timespec time = { .tv_sec = 20 };
		int ready = turn++ % 2 == 0 ? epoll_wait(set, &event, 1, 20000) : epoll_pwait2(set, &event, 1, &time, NULL);
		CHECK(ready == 1 && event.data.u64 == 77);
		return event.events;
	}
	struct pollfd one = { .fd = port->fd, .events = events };
	CHECK(poll(&one, 1, 20000) == 1);
	return one.revents;
}

static uint32_t length(uint32_t number)
{
	return 60 + number * 37 % 1455;
}

static void put_frame(uint8_t *at, uint32_t number, int from)
{
	const uint8_t head[14] = { 2, 0, 0, 0, 0, 3 - from, 2, 0, 0, 0, 0, from, 0x88, 0xb5 };
	memcpy(at, head, 14);
	memcpy(at + 14, &number, 4);
	for (uint32_t byte = 18; byte < length(number); byte++)
		at[byte] = number * 7 + byte * 13 + from;
}

static void check_frame(const uint8_t *at, uint32_t len, uint32_t number, int from)
{
	uint8_t wanted[2048];
	put_frame(wanted, number, from);
	CHECK(len == length(number) && memcmp(at, wanted, len) == 0);
}

static void send_frames(struct port *port, uint32_t first, uint32_t count, int from)
{
	struct ring *ring = port->tx;
	while (count > 0) {
		while (count > 0 && ring->head != ring->tail) {
			struct slot *slot = &ring->slot[ring->head];
			put_frame(buffer(ring, slot->buf_idx), first, from);
			slot->len = length(first), slot->flags = 0;
			ring->head = ring->cur = next(ring, ring->head);
			first++, count--;
		}
		if (count > 0)
			CHECK(wait_for(port, POLLOUT) & POLLOUT);
	}
	CHECK(ioctl(port->fd, TXSYNC, NULL) == 0);
}

static void receive_frames(struct port *port, uint32_t first, uint32_t count, int from)
{
	struct ring *ring = port->rx;
	while (count > 0) {
		if (ring->head == ring->tail)
			CHECK(wait_for(port, POLLIN) & POLLIN);
		CHECK(ring->ts.tv_sec > 1000000000);
		for (; count > 0 && ring->head != ring->tail; ring->head = ring->cur = next(ring, ring->head)) {
			struct slot *slot = &ring->slot[ring->head];
			check_frame(buffer(ring, slot->buf_idx), slot->len, first, from);
			first++, count--;
		}
	}
}

/* Batches of frames from number `first` on that are answered by as many, so that no ring overflows. */
static void ask(struct port *port, uint32_t first, uint32_t count)
{
	for (uint32_t at = first; at < first + count; at += BATCH) {
		send_frames(port, at, BATCH, 1);
		receive_frames(port, at, BATCH, 2);
	}
}

static void answer(struct port *port, uint32_t count)
{
	puts("ready");
	fflush(stdout);
	for (uint32_t at = 0; at < count; at += BATCH) {
		receive_frames(port, at, BATCH, 1);
		send_frames(port, at, BATCH, 2);
	}
}

static int poll_events(struct port *port, int events, int time)
{
	struct pollfd one = { .fd = port->fd, .events = events };
	return poll(&one, 1, time) >= 0 ? one.revents : -1;
}

static int descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}
