/* A netmap program for the tests, against declarations of its own of netmap's ABI. Prints what failed, and exits with 1. */
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
		CHECK(epoll_wait(set, &event, 1, 20000) == 1 && event.data.u64 == 77);
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

/* Batches of frames that are answered by as many, so that no ring overflows. */
static void ask(struct port *port, uint32_t count)
{
	for (uint32_t at = 0; at < count; at += BATCH) {
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

/* Everything that can be written wrongly; afterwards the port works as before. */
static void write_wrongly(struct port *port)
{
	struct ring *tx = port->tx, *rx = port->rx;
	const uint32_t wrong[] = { tx->num_slots, UINT32_MAX, tx->num_slots - 1 };
	for (int at = 0; at < 3; at++) {
		tx->head = wrong[at], tx->cur = at == 2 ? 3 : wrong[at];
		CHECK(ioctl(port->fd, TXSYNC, NULL) == 0 && tx->head == 0 && tx->cur == 0);
		rx->head = wrong[at], rx->cur = wrong[at];
		CHECK(ioctl(port->fd, RXSYNC, NULL) == 0 && rx->head == 0 && rx->cur == 0);
		tx->head = tx->cur = UINT32_MAX;
		CHECK(poll_events(port, POLLOUT, 0) == (POLLERR | POLLOUT));
		rx->head = 1, rx->cur = 1;
		CHECK(poll_events(port, POLLIN, 0) == POLLERR && rx->head == 0);
	}
	CHECK(poll_events(port, POLLOUT, 0) == POLLOUT && poll_events(port, POLLIN, 0) == 0);
	const struct slot bad[] = {
		{ .buf_idx = 0, .len = 60 }, { .buf_idx = UINT32_MAX, .len = 60 }, { .buf_idx = 2, .len = 2049 },
		{ .buf_idx = 1 << 20, .len = 60 }, { .buf_idx = 2, .len = 60, .flags = INDIRECT, .ptr = 1 },
	};
	for (int at = 0; at < 5; at++) {
		uint32_t place = tx->head, own = tx->slot[place].buf_idx;
		tx->slot[place] = bad[at];
		tx->head = tx->cur = next(tx, place);
		CHECK(poll_events(port, POLLOUT, 0) & POLLERR);
		CHECK(tx->slot[place].buf_idx == own && tx->slot[place].len == 0);
	}
	/* A frame of too many slots, and one without an end, which waits for it. */
	for (int at = 0; at < 70; at++, tx->head = tx->cur = next(tx, tx->head))
		tx->slot[tx->head].len = 60, tx->slot[tx->head].flags = at < 69 ? MOREFRAG : 0;
	CHECK(poll_events(port, POLLOUT, 0) & POLLERR);
	/* A slot to receive in without a buffer gets one. */
	rx->slot[0].buf_idx = UINT32_MAX;
}

static void use_extra(struct port *port)
{
	uint32_t list[10], count = 0;
	for (uint32_t at = port->interface->bufs_head; at != 0; at = *(uint32_t *)buffer(port->tx, at)) {
		CHECK(count < 10);
		list[count++] = at;
	}
	CHECK(count == 10);
	/* The first slots are sent from extra buffers. */
	for (uint32_t at = 0; at < 10; at++)
		port->tx->slot[at].buf_idx = list[at], port->tx->slot[at].flags = CHANGED;
}

/* A second handle for a port has the same rings, unless one of both wants them alone. */
static void open_again(struct port *port, const char *name)
{
	struct reg reg = { .mode = 1, .flags = 0x4000 }, alone = { .mode = 1, .flags = 0x800 };
	int fd = open("/dev/netmap", O_RDWR);
	CHECK(new_request(fd, name, &alone, NULL) == -1 && errno == EBUSY);
	CHECK(new_request(fd, name, &reg, NULL) == 0 && reg.mem_id > 1 && reg.extra == 0);
	struct interface *other = (struct interface *)((char *)port->interface + reg.offset);
	CHECK(other != port->interface && other->ring_ofs[2] == 0);
	CHECK((char *)other + other->ring_ofs[0] == (char *)port->tx);
	CHECK(poll_events(port, POLLOUT, 0) == POLLOUT && ioctl(fd, RXSYNC, NULL) == 0 && ioctl(fd, TXSYNC, NULL) == 0);
	CHECK(close(fd) == 0);
}

static void expect(const char *name, struct reg reg, struct option *option, int error)
{
	int fd = open("/dev/netmap", O_RDWR);
	CHECK(fd >= 0 && ioctl(fd, TXSYNC, NULL) == -1 && errno == ENXIO);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(new_request(fd, name, &reg, option) == -1 && errno == error);
	CHECK(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
}

static void be_refused(const char *name, const char *busy)
{
	struct option second = { .type = 2 }, first = { .type = 1, .next = (uintptr_t)&second };
	expect("nothing", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect("../a", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect(name, (struct reg){ .mode = 2 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 3 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 4, .ringid = 1 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 1, .flags = 0x100 }, NULL, EOPNOTSUPP);
	expect("a{1", (struct reg){ .mode = 1 }, NULL, EOPNOTSUPP);
	expect(name, (struct reg){ .mode = 1 }, &first, EOPNOTSUPP);
	CHECK(first.status == EOPNOTSUPP && second.status == EOPNOTSUPP);
	expect(busy, (struct reg){ .mode = 1 }, NULL, EBUSY);
	int fd = open("/dev/netmap", O_RDWR);
	struct old old = { .version = 10 };
	CHECK(old_request(fd, name, &old) == -1 && errno == EINVAL && old.version == 14);
	CHECK(ioctl(fd, CONTROL, NULL) == -1 && errno == EFAULT);
	struct info info;
	struct header header = { .version = 14, .type = 2, .body = (uintptr_t)&info };
	snprintf(header.name, sizeof header.name, "%s", name);
	CHECK(ioctl(fd, CONTROL, &header) == 0 && info.tx_rings == 1 && info.tx_slots > 0 && info.memsize > 0);
	old = (struct old){ .version = 11 };
	snprintf(old.name, sizeof old.name, "%s", name);
	CHECK(ioctl(fd, INFO, &old) == 0 && old.rx_rings == 1);
	header.type = 5;
	CHECK(ioctl(fd, CONTROL, &header) == -1 && errno == EOPNOTSUPP);
}

int main(int count, char **words)
{
	CHECK(count == 6);
	const char *task = words[1], *name = words[2];
	uint32_t frames = atoi(words[5]);
	if (strcmp(task, "refused") == 0) {
		be_refused(name, words[3]);
		return 0;
	}
	if (strcmp(task, "busy") == 0 || strcmp(task, "absent") == 0) {
		struct reg reg = { .mode = 1 };
		int fd = open("/dev/netmap", O_RDWR);
		CHECK(fd >= 0 && new_request(fd, name, &reg, NULL) == -1);
		CHECK(errno == (strcmp(task, "busy") == 0 ? EBUSY : ENXIO));
		return 0;
	}
	struct port port = opened(name, words[3], strcmp(task, "extra") == 0 ? 10 : 0);
	port.wait = words[4];
	if (strcmp(task, "answer") == 0)
		answer(&port, frames);
	if (strcmp(task, "wrong") == 0)
		write_wrongly(&port);
	if (strcmp(task, "twice") == 0)
		open_again(&port, name);
	if (strcmp(task, "extra") == 0)
		use_extra(&port);
	if (strcmp(task, "dup") == 0) {
		int other = dup(port.fd);
		CHECK(close(port.fd) == 0);
		port.fd = other;
	}
	if (strcmp(task, "fork") == 0) {
		int status = -1;
		pid_t child = fork();
		if (child != 0) {
			CHECK(waitpid(child, &status, 0) == child && status == 0);
			return 0;
		}
	}
	if (strcmp(task, "closed") == 0) {
		puts("ready");
		fflush(stdout);
		CHECK(wait_for(&port, POLLIN) & (POLLERR | POLLIN));
		CHECK(poll_events(&port, POLLIN, -1) == POLLERR);
		CHECK(ioctl(port.fd, TXSYNC, NULL) == -1 && errno == ENXIO);
		CHECK(ioctl(port.fd, RXSYNC, NULL) == -1 && errno == ENXIO);
	} else if (strcmp(task, "answer") != 0)
		ask(&port, frames);
	CHECK(close(port.fd) == 0);
	return 0;
}
