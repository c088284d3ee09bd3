/* A netmap program for the tests: one handle, used rightly and wrongly. */
#include "netmap.h"
#include <net/if.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

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
		if (bad[at].buf_idx == 2)
			tx->slot[place].buf_idx = own;
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

/* Options that are too many, or there twice. */
static void refuse_options(int fd, const char *name)
{
	struct reg reg = { .mode = 1 };
	struct option endless = { .type = 99 }, twice[2] = { { .type = 3, .next = (uintptr_t)&twice[1] }, { .type = 3 } };
	endless.next = (uintptr_t)&endless;
	CHECK(new_request(fd, name, &reg, &endless) == -1 && errno == EMSGSIZE);
	CHECK(new_request(fd, name, &reg, twice) == -1 && errno == EINVAL);
	CHECK(twice[0].status == EINVAL && twice[1].status == EINVAL);
}

static void be_refused(const char *name, const char *busy)
{
	struct option second = { .type = 2 }, first = { .type = 1, .next = (uintptr_t)&second };
	expect("nothing", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect("../a", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect(name, (struct reg){ .mode = 2 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 3 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 4, .ringid = 1 }, NULL, EINVAL);
	expect(name, (struct reg){ .mode = 1, .flags = 0x100 }, NULL, EINVAL);
	expect("nothing", (struct reg){ .mode = 1, .flags = 0x100 }, NULL, ENXIO);
	expect("a{", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect("a{../1", (struct reg){ .mode = 1 }, NULL, ENXIO);
	expect("a{1", (struct reg){ .mode = 3 }, NULL, EINVAL);
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
	header.type = 3;
	CHECK(ioctl(fd, CONTROL, &header) == -1 && errno == EINVAL);
	header.type = 10;
	CHECK(ioctl(fd, CONTROL, &header) == -1 && errno == EOPNOTSUPP);
	refuse_options(fd, name);
}

struct list { uint16_t bridge, pad; uint32_t port; };
struct pools { uint64_t memsize; uint16_t mem_id, pad[3]; struct { uint64_t offset; uint32_t total, size; } kind[3]; };

static int control(int fd, uint16_t type, const char *name, void *body)
{
	struct header header = { .version = 14, .type = type, .body = (uintptr_t)body };
	snprintf(header.name, sizeof header.name, "%s", name);
	return ioctl(fd, CONTROL, &header);
}

/* The ports of switches, memory pools, and a handle without a port. */
static void ask_the_rest(const char *name)
{
	struct list list = { 0 };
	struct pools pools = { 0 };
	int fd = open("/dev/netmap", O_RDWR), count = 0;
	struct header header = { .version = 14, .type = 5, .body = (uintptr_t)&list };
	for (; ioctl(fd, CONTROL, &header) == 0; list.port++, count++) {
		const char *names[] = { "valemain:a", "valemain:b", "valemain:c" };
		CHECK(count < 3 && strcmp(header.name, names[count]) == 0 && list.bridge == 0 && list.port == count);
		header.name[0] = 0;
	}
	CHECK(count == 3 && errno == ENOENT);
	CHECK(control(fd, 5, "valemain:c", &list) == 0 && list.port == 2);
	CHECK(control(fd, 5, "valemain:d", &list) == -1 && errno == ENOENT);
	CHECK(control(fd, 12, "", &pools) == -1 && control(fd, 12, name, &pools) == 0 && pools.kind[2].size == 2048);
	struct reg reg = { .mode = 7, .mem_id = 1, .tx_rings = 10, .rx_rings = 5, .tx_slots = 256, .rx_slots = 100 };
	CHECK(new_request(fd, "nothing", &reg, NULL) == 0 && reg.tx_rings == 10 && reg.rx_slots == 100 && reg.mem_id == 1);
	CHECK(ioctl(fd, TXSYNC, NULL) == 0 && poll_events(&(struct port){ .fd = fd }, POLLIN, 0) == 0);
	CHECK(control(fd, 12, "", &pools) == 0 && pools.memsize == reg.memsize && pools.mem_id > 1);
	CHECK(close(fd) == 0);
}

/* API 15, by both requests: what is answered is 14. */
static void use_version_15(const char *name)
{
	struct reg reg = { .mode = 1 };
	struct old old = { .version = 15 };
	struct header header = { .version = 15, .type = 1, .body = (uintptr_t)&reg };
	int fds[2] = { open("/dev/netmap", O_RDWR), open("/dev/netmap", O_RDWR) };
	snprintf(header.name, sizeof header.name, "%s", name);
	CHECK(ioctl(fds[0], CONTROL, &header) == 0 && header.version == 14 && reg.mem_id > 1);
	CHECK(old_request(fds[1], name, &old) == 0 && old.version == 14 && old.arg2 == reg.mem_id);
	CHECK(ioctl(fds[0], RXSYNC, NULL) == 0 && ioctl(fds[1], RXSYNC, NULL) == 0);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

/* VALE ports have memory of their own, unless a program names one; and a handle may have one ring alone. */
static void use_suffixes(const char *name)
{
	struct reg one = { .mode = 1 }, two = { .mode = 1 }, named = { .mode = 1 }, rx = { .mode = 1, .flags = 0x2000 };
	int fds[4];
	for (int at = 0; at < 4; at++)
		CHECK((fds[at] = open("/dev/netmap", O_RDWR)) >= 0);
	CHECK(new_request(fds[0], "valemain:b", &one, NULL) == 0 && new_request(fds[1], "valemain:c", &two, NULL) == 0);
	CHECK(one.mem_id > 1 && two.mem_id > 1 && one.mem_id != two.mem_id);
	CHECK(close(fds[1]) == 0 && (fds[1] = open("/dev/netmap", O_RDWR)) >= 0);
	named.mem_id = one.mem_id;
	CHECK(new_request(fds[1], "valemain:c", &named, NULL) == 0);
	CHECK(named.mem_id == one.mem_id && named.memsize == one.memsize && named.offset != one.offset);
	CHECK(new_request(fds[2], name, &rx, NULL) == 0);
	char *memory = mmap(NULL, rx.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
	CHECK(memory != MAP_FAILED);
	struct interface *interface = (struct interface *)(memory + rx.offset);
	CHECK(interface->ring_ofs[0] == 0 && interface->ring_ofs[2] != 0);
	CHECK(poll_events(&(struct port){ .fd = fds[2] }, POLLOUT, 0) == 0);
	for (int at = 0; at < 4; at++)
		CHECK(close(fds[at]) == 0);
}

/* As `lb -p 20`, which exchanges buffers between a port, whose extra buffers it has, and its pipes. */
static void open_pipes(const char *name)
{
	struct reg port = { .mode = 1, .extra = 1 << 14 };
	int fds[21] = { open("/dev/netmap", O_RDWR) };
	CHECK(new_request(fds[0], name, &port, NULL) == 0 && port.extra == 1 << 14);
	for (int at = 1; at <= 20; at++) {
		char pipe[64];
		struct reg reg = { .mode = 1, .flags = 0x4800 };
		snprintf(pipe, sizeof pipe, "%s{%d", name, at);
		fds[at] = open("/dev/netmap", O_RDWR);
		CHECK(new_request(fds[at], pipe, &reg, NULL) == 0 && reg.mem_id == port.mem_id);
	}
	for (int at = 0; at <= 20; at++)
		CHECK(close(fds[at]) == 0);
}

/* The largest packet of an interface that is a port. */
static void ask_the_mtu(const char *name)
{
	struct ifreq request = { 0 };
	int any = socket(AF_INET, SOCK_DGRAM, 0);
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	CHECK(ioctl(any, SIOCGIFMTU, &request) == 0 && request.ifr_mtu == 1500);
	snprintf(request.ifr_name, sizeof request.ifr_name, "nothing");
	CHECK(ioctl(any, SIOCGIFMTU, &request) == -1 && errno == ENODEV);
	CHECK(close(any) == 0);
}

/* What is ready to be read within a time, by one of the calls: 1 a handle, 2 another descriptor, 3 both. */
static int ready(const char *call, const int fds[2], int time)
{
	int found = 0, count, set;
	if (strcmp(call, "poll") == 0) {
		struct pollfd both[2] = { { .fd = fds[0], .events = POLLIN }, { .fd = fds[1], .events = POLLIN } };
		count = poll(both, 2, time);
		for (int at = 0; at < 2; at++)
			found |= both[at].revents == POLLIN ? 1 << at : 0;
	} else if (strcmp(call, "select") == 0) {
		fd_set read;
		struct timeval most = { .tv_sec = time / 1000, .tv_usec = time % 1000 * 1000 };
		FD_ZERO(&read);
		FD_SET(fds[0], &read);
		FD_SET(fds[1], &read);
		count = select((fds[0] > fds[1] ? fds[0] : fds[1]) + 1, &read, NULL, NULL, &most);
		for (int at = 0; at < 2; at++)
			found |= FD_ISSET(fds[at], &read) ? 1 << at : 0;
	} else {
		struct epoll_event events[2];
		CHECK((set = epoll_create1(0)) >= 0);
		for (int at = 0; at < 2; at++) {
			struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 << at };
			CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[at], &event) == 0);
		}
		count = epoll_wait(set, events, 2, time);
		for (int at = 0; at < count; at++)
			found |= events[at].data.u64;
		CHECK(close(set) == 0);
	}
	CHECK(count == (found & 1) + (found >> 1));
	return found;
}

/* A child that sends a frame, or without a port writes a byte, after the parent has begun to wait. */
static pid_t begin_later(struct port *port, uint32_t number, int socket)
{
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		if (port != NULL)
			send_frames(port, number, 1, 1);
		else
			CHECK(write(socket, "x", 1) == 1);
		_exit(0);
	}
	return child;
}

static void ends(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *wait_once(void *port)
{
	return (void *)(intptr_t)(wait_for(port, POLLIN) & POLLIN);
}

/* A handle and a socket that one call waits for; and a handle that two threads wait for. */
static void mix(void)
{
	const char *calls[] = { "poll", "select", "epoll" };
	struct port one = opened("mix{1", "new", 0), two = opened("mix}1", "new", 0);
	int sockets[2];
	char byte;
	one.wait = two.wait = "poll";
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	const int fds[2] = { two.fd, sockets[1] };
	for (uint32_t at = 0; at < 3; at++) {
		CHECK(ready(calls[at], fds, 0) == 0 && ready(calls[at], fds, 20) == 0);
		pid_t child = begin_later(NULL, 0, sockets[0]);
		CHECK(ready(calls[at], fds, 20000) == 2 && ready(calls[at], fds, 0) == 2);
		ends(child);
		send_frames(&one, 2 * at, 1, 1);
		CHECK(ready(calls[at], fds, 0) == 3 && read(sockets[1], &byte, 1) == 1);
		CHECK(ready(calls[at], fds, 20000) == 1 && ready(calls[at], fds, 0) == 1);
		receive_frames(&two, 2 * at, 1, 1);
		CHECK(ready(calls[at], fds, 0) == 0);
		child = begin_later(&one, 2 * at + 1, -1);
		CHECK(ready(calls[at], fds, 20000) == 1);
		ends(child);
		receive_frames(&two, 2 * at + 1, 1, 1);
	}
	pthread_t threads[2];
	for (int at = 0; at < 2; at++)
		CHECK(pthread_create(&threads[at], NULL, wait_once, &two) == 0);
	usleep(50000);
	send_frames(&one, 6, 1, 1);
	for (int at = 0; at < 2; at++) {
		void *found;
		CHECK(pthread_join(threads[at], &found) == 0 && (intptr_t)found == POLLIN);
	}
	receive_frames(&two, 6, 1, 1);
	CHECK(close(one.fd) == 0 && close(two.fd) == 0);
}

/* Frames behind a `virtio_net_hdr`: sent and received by one port, while the other end has none. */
static void use_headers(struct port *port, const char *name, uint32_t count)
{
	uint32_t len = 11;
	CHECK(control(port->fd, 6, name, &len) == -1 && errno == EINVAL);
	for (len = 12; len >= 10; len -= 2) {
		uint32_t got = 0, half = count / 2, first = len == 12 ? 0 : half;
		CHECK(control(port->fd, 6, name, &len) == 0 && control(port->fd, 7, name, &got) == 0 && got == len);
		for (uint32_t at = first; at < first + half; at++) {
			struct slot *slot = &port->tx->slot[port->tx->head];
			memset(buffer(port->tx, slot->buf_idx), 0, len);
			put_frame(buffer(port->tx, slot->buf_idx) + len, at, 1);
			slot->len = len + length(at);
			port->tx->head = port->tx->cur = next(port->tx, port->tx->head);
			if (at % BATCH != BATCH - 1)
				continue;
			CHECK(ioctl(port->fd, TXSYNC, NULL) == 0);
			for (uint32_t back = at - BATCH + 1; back <= at; back++) {
				if (port->rx->head == port->rx->tail)
					CHECK(wait_for(port, POLLIN) & POLLIN);
				slot = &port->rx->slot[port->rx->head];
				check_frame(buffer(port->rx, slot->buf_idx) + len, slot->len - len, back, 2);
				port->rx->head = port->rx->cur = next(port->rx, port->rx->head);
			}
		}
	}
}

/* As netmap's bridge: what one port has received another one sends, and their slots exchange buffers. */
static uint32_t forward(struct ring *rx, struct ring *tx)
{
	uint32_t count = 0;
	for (; rx->head != rx->tail && tx->head != tx->tail; count++) {
		struct slot *from = &rx->slot[rx->head], *to = &tx->slot[tx->head];
		uint32_t spare = to->buf_idx;
		to->buf_idx = from->buf_idx, to->len = from->len, to->flags = CHANGED;
		from->buf_idx = spare, from->flags = CHANGED;
		rx->head = rx->cur = next(rx, rx->head);
		tx->head = tx->cur = next(tx, tx->head);
	}
	return count;
}

/* Ports that a program opens as netmap's are in one memory. */
static void bridge(const char *name, const char *other, uint32_t count)
{
	struct port one = opened(name, "new", 0), two = opened(other, "new", 0);
	struct pools pools[2];
	CHECK(control(one.fd, 12, "", &pools[0]) == 0 && control(two.fd, 12, "", &pools[1]) == 0);
	CHECK(pools[0].mem_id == pools[1].mem_id && pools[0].memsize == pools[1].memsize);
	puts("ready");
	fflush(stdout);
	while (count > 0) {
		struct pollfd both[2] = { { .fd = one.fd, .events = POLLIN }, { .fd = two.fd, .events = POLLIN } };
		CHECK(poll(both, 2, 20000) > 0);
		uint32_t done = forward(one.rx, two.tx) + forward(two.rx, one.tx);
		CHECK(done <= count);
		count -= done;
		CHECK(ioctl(one.fd, TXSYNC, NULL) == 0 && ioctl(two.fd, TXSYNC, NULL) == 0);
	}
	CHECK(close(one.fd) == 0 && close(two.fd) == 0);
}

struct entry { volatile uint32_t word[16]; };
static struct { struct entry given[2], told[2]; } csb __attribute__((aligned(64)));
static int loop_fd;

static void *run_loop(void *options)
{
	uint32_t start[2] = { 200, 0 };
	struct header header = { .version = 14, .type = 13, .options = (uintptr_t)options, .body = (uintptr_t)start };
	return (void *)(intptr_t)ioctl(loop_fd, CONTROL, &header);
}

/* A thread syncs for this one, by positions in a control block; woken by eventfds or not. */
static void use_loop(const char *name, uint32_t first, uint32_t count, int wakes)
{
	struct { struct option option; uint64_t given, told; } block = { { .type = 3 }, (uintptr_t)csb.given, (uintptr_t)csb.told };
	struct { struct option option; int32_t fds[4]; } events = { { .type = 2, .size = sizeof events }, { 0 } };
	struct reg reg = { .mode = 1, .flags = 0x800 };
	pthread_t thread;
	void *result;
	memset(&csb, 0, sizeof csb);
	loop_fd = open("/dev/netmap", O_RDWR);
	block.given += 16;
	CHECK(new_request(loop_fd, name, &reg, &block.option) == -1 && errno == EINVAL);
	block.given = 64;
	CHECK(new_request(loop_fd, name, &reg, &block.option) == -1 && errno == EFAULT);
	block.given = (uintptr_t)csb.given;
	CHECK(control(loop_fd, 14, name, NULL) == -1 && errno == EINVAL);
	CHECK(new_request(loop_fd, name, &reg, &block.option) == 0 && block.option.status == 0);
	CHECK(ioctl(loop_fd, TXSYNC, NULL) == -1 && errno == EBUSY);
	char *memory = mmap(NULL, reg.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, loop_fd, 0);
	struct interface *interface = (struct interface *)(memory + reg.offset);
	struct ring *tx = (struct ring *)((char *)interface + interface->ring_ofs[0]);
	struct ring *rx = (struct ring *)((char *)interface + interface->ring_ofs[2]);
	for (int at = 0; wakes && at < 4; at++)
		events.fds[at] = eventfd(0, EFD_NONBLOCK);
	CHECK(pthread_create(&thread, NULL, run_loop, wakes ? &events.option : NULL) == 0);
	while (csb.told[0].word[1] == 0)
		usleep(100);
	CHECK(run_loop(NULL) == (void *)-1 && errno == EBUSY);
	uint32_t sent = 0, received = 0;
	for (uint32_t at = first; at < first + count; at++) {
		struct slot *slot = &tx->slot[sent];
		put_frame(buffer(tx, slot->buf_idx), at, 1);
		slot->len = length(at);
		sent = next(tx, sent);
		if (at % BATCH != BATCH - 1)
			continue;
		csb.given[0].word[1] = sent;
		__sync_synchronize();
		csb.given[0].word[0] = sent;
		__sync_synchronize();
		csb.given[1].word[2] = 1;
		if (wakes && csb.told[0].word[2])
			CHECK(write(events.fds[0], &(uint64_t){ 1 }, 8) == 8);
		for (uint32_t back = at - BATCH + 1; back <= at; back++) {
			for (int pause = 0; received == csb.told[1].word[1]; pause++) {
				CHECK(pause < 20000);
				struct pollfd one = { .fd = wakes ? events.fds[3] : -1, .events = POLLIN };
				uint64_t wakes_until_now;
				if (poll(&one, 1, 1) == 1)
					CHECK(read(one.fd, &wakes_until_now, 8) == 8);
			}
			slot = &rx->slot[received];
			check_frame(buffer(rx, slot->buf_idx), slot->len, back, 2);
			received = next(rx, received);
		}
		csb.given[1].word[1] = received;
		__sync_synchronize();
		csb.given[1].word[0] = received;
	}
	CHECK(control(loop_fd, 14, name, NULL) == 0 && pthread_join(thread, &result) == 0 && result == NULL);
	CHECK(close(loop_fd) == 0);
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
	if (strcmp(task, "bridge") == 0) {
		bridge(name, words[3], frames);
		return 0;
	}
	if (strcmp(task, "busy") == 0 || strcmp(task, "absent") == 0) {
		struct reg reg = { .mode = 1 };
		int fd = open("/dev/netmap", O_RDWR);
		CHECK(fd >= 0 && new_request(fd, name, &reg, NULL) == -1);
		CHECK(errno == (strcmp(task, "busy") == 0 ? EBUSY : ENXIO));
		return 0;
	}
	if (strcmp(task, "rest") == 0) {
		ask_the_rest(name);
		use_version_15(name);
		use_suffixes(name);
		open_pipes(name);
		ask_the_mtu(name);
		return 0;
	}
	if (strcmp(task, "mix") == 0) {
		mix();
		return 0;
	}
	if (strcmp(task, "privileged") == 0) {
		CHECK(getauxval(AT_SECURE) != 0);
		CHECK(open("/dev/netmap", O_RDWR) == -1 && errno == ENOENT);
		return 0;
	}
	if (strcmp(task, "loop") == 0) {
		use_loop(name, 0, frames / 2, 0);
		use_loop(name, frames / 2, frames / 2, 1);
		return 0;
	}
	int before = descriptors();
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
		/* A child has a copy of the handle, and none of what the library has beside it. */
		CHECK(descriptors() == before + 1);
	}
	if (strcmp(task, "closed") == 0) {
		puts("ready");
		fflush(stdout);
		CHECK(wait_for(&port, POLLIN) & (POLLERR | POLLIN));
		CHECK(poll_events(&port, POLLIN, -1) == POLLERR);
		CHECK(ioctl(port.fd, TXSYNC, NULL) == -1 && errno == ENXIO);
		CHECK(ioctl(port.fd, RXSYNC, NULL) == -1 && errno == ENXIO);
	} else if (strcmp(task, "headers") == 0)
		use_headers(&port, name, frames);
	else if (strcmp(task, "answer") != 0)
		ask(&port, 0, frames);
	CHECK(close(port.fd) == 0);
	return 0;
}
