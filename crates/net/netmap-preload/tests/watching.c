/* A netmap program for the tests: monitors, host rings, and persistent VALE ports. */
#include "netmap.h"

#define MONITOR_SENT 0x100
#define MONITOR_RECEIVED 0x200
#define MONITOR_ZERO_COPY 0x400

static int control(int fd, uint16_t type, const char *name, void *body)
{
	struct header header = { .version = 14, .type = type, .body = (uintptr_t)body };
	snprintf(header.name, sizeof header.name, "%s", name);
	return ioctl(fd, CONTROL, &header);
}

static struct port mapped(int fd, struct reg *reg)
{
	struct port port = { .fd = fd, .wait = "poll" };
	char *memory = mmap(NULL, reg->memsize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	port.interface = (struct interface *)(memory + reg->offset);
	port.tx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[0]);
	port.rx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[2]);
	return port;
}

static struct port monitor(const char *name, uint64_t flags)
{
	struct reg reg = { .mode = 1, .flags = flags };
	int fd = open("/dev/netmap", O_RDWR);
	/* A program that has the port may not have run for two seconds. */
	for (int turn = 0; fd >= 0 && new_request(fd, name, &reg, NULL) != 0; turn++)
		CHECK(errno == EBUSY && turn < 10);
	CHECK(fd >= 0 && reg.tx_rings == 1 && reg.rx_rings == 1);
	struct port port = mapped(fd, &reg);
	CHECK(port.tx->tail == port.tx->num_slots - 1 && port.rx->tail == 0);
	CHECK(ioctl(fd, TXSYNC, NULL) == -1 && errno == EIO && poll_events(&port, POLLIN, 0) == 0);
	return port;
}

/* Frames of a process that has the monitor's handle, while this one syncs the port. */
static void read_in_child(struct port *port, struct port *both, uint32_t first)
{
	int status = -1;
	pid_t child = fork();
	if (child == 0) {
		receive_frames(both, first, BATCH, 1);
		receive_frames(both, first, BATCH, 2);
		CHECK(ioctl(both->fd, RXSYNC, NULL) == 0);
		_exit(0);
	}
	ask(port, first, BATCH);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What a port sends and receives, in the order in which it does; and without a copy, where both directions are
 * monitored whatever is asked for, what it has received and given back. */
static void watch(const char *name, uint32_t frames)
{
	int fd = open("/dev/netmap", O_RDWR);
	struct reg none = { .mode = 1, .flags = MONITOR_SENT };
	CHECK(new_request(fd, name, &none, NULL) == -1 && errno == EINVAL);
	CHECK(new_request(fd, "nothing", &none, NULL) == -1 && errno == ENXIO);
	struct port port = opened(name, "new", 0);
	port.wait = "poll";
	struct port both = monitor(name, MONITOR_SENT | MONITOR_RECEIVED);
	struct port returned = monitor(name, MONITOR_RECEIVED | MONITOR_ZERO_COPY);
	CHECK(both.rx != returned.rx && both.interface != returned.interface);
	both.wait = "epoll";
	for (uint32_t at = 0; at < frames; at += BATCH) {
		send_frames(&port, at, BATCH, 1);
		receive_frames(&both, at, BATCH, 1);
		/* They arrive at the monitor while the port does not ask for them. */
		receive_frames(&both, at, BATCH, 2);
		receive_frames(&returned, at, BATCH, 1);
		CHECK(poll_events(&returned, POLLIN, 0) == 0);
		receive_frames(&port, at, BATCH, 2);
		CHECK(poll_events(&returned, POLLIN, 0) == 0);
		CHECK(ioctl(port.fd, RXSYNC, NULL) == 0);
		CHECK(poll_events(&returned, POLLIN, 0) == POLLIN);
		receive_frames(&returned, at, BATCH, 2);
	}
	CHECK(ioctl(both.fd, RXSYNC, NULL) == 0);
	read_in_child(&port, &both, frames);
	/* There are four at most, and one that is closed makes room. */
	struct port more[2] = { monitor(name, MONITOR_ZERO_COPY), monitor(name, MONITOR_SENT) };
	CHECK(new_request(fd, name, &none, NULL) == -1 && errno == EBUSY);
	CHECK(close(more[1].fd) == 0 && new_request(fd, name, &none, NULL) == 0);
	/* A monitor that is not read loses copies, and the port nothing. */
	for (uint32_t at = frames + BATCH; at < 2 * frames; at += BATCH)
		ask(&port, at, BATCH);
	CHECK(poll_events(&both, POLLIN, 0) == POLLIN);
	uint32_t kept = both.rx->tail - both.rx->head;
	CHECK(kept % both.rx->num_slots == both.rx->num_slots - 1);
	/* What its program writes wrongly is put right. */
	both.rx->head = both.rx->num_slots;
	CHECK(poll_events(&both, POLLIN, 0) == POLLERR);
	CHECK(close(port.fd) == 0 && ioctl(both.fd, RXSYNC, NULL) == 0);
}

/* Frames from one port to another until one arrives, since both may have been opened at this moment; then the rest. */
static void meet(struct port *from, struct port *to)
{
	for (int turn = 0; poll_events(to, POLLIN, 20) != POLLIN; turn++) {
		CHECK(turn < 1000);
		send_frames(from, 0, 1, 1);
	}
	while (poll_events(to, POLLIN, 50) == POLLIN)
		to->rx->head = to->rx->cur = to->rx->tail;
}

/* A monitor of a port that another program has, which answers what this one sends by its own port. */
static void spy(const char *name, uint32_t frames)
{
	struct port port = opened("a", "new", 0), both = monitor(name, MONITOR_SENT | MONITOR_RECEIVED);
	port.wait = "poll", both.wait = "select";
	for (uint32_t at = 0; at < frames; at += BATCH) {
		ask(&port, at, BATCH);
		receive_frames(&both, at, BATCH, 1);
		receive_frames(&both, at, BATCH, 2);
		CHECK(at % 256 != 0 || ioctl(both.fd, RXSYNC, NULL) == 0);
	}
	CHECK(close(both.fd) == 0);
}

/* Numbered frames from one ring to another, of a handle with both kinds of rings and another port's. */
static void host(const char *name, const char *other)
{
	struct reg all = { .mode = 3 }, alone = { .mode = 2, .mem_id = 0 }, one = { .mode = 8, .ringid = 1 };
	int fd = open("/dev/netmap", O_RDWR), second = open("/dev/netmap", O_RDWR);
	CHECK(new_request(fd, other, &all, NULL) == -1 && errno == EINVAL);
	CHECK(new_request(fd, name, &one, NULL) == -1 && errno == EINVAL);
	all = (struct reg){ .mode = 3 };
	CHECK(new_request(fd, name, &all, NULL) == 0 && all.host_tx == 1 && all.host_rx == 1);
	struct port both = mapped(fd, &all), peer = opened(other, "new", 0);
	peer.wait = "poll";
	for (int at = 0; at < 4; at++)
		CHECK(both.interface->ring_ofs[at] != 0);
	struct port stack = both;
	stack.tx = (struct ring *)((char *)both.interface + both.interface->ring_ofs[1]);
	stack.rx = (struct ring *)((char *)both.interface + both.interface->ring_ofs[3]);
	CHECK(stack.tx->dir == 0 && stack.rx->dir == 1 && stack.rx != both.rx);
	meet(&both, &peer);
	meet(&stack, &peer);
	/* What the switch sent to all. */
	CHECK(ioctl(fd, RXSYNC, NULL) == 0);
	both.rx->head = both.rx->cur = both.rx->tail, stack.rx->head = stack.rx->cur = stack.rx->tail;
	/* The switch learns where the address is; the answers come to that ring. */
	for (int turn = 0; turn < 2; turn++) {
		struct port *from = turn == 0 ? &stack : &both, *not_from = turn == 0 ? &both : &stack;
		send_frames(from, turn, 1, 1);
		receive_frames(&peer, turn, 1, 1);
		CHECK(ioctl(peer.fd, RXSYNC, NULL) == 0 && ioctl(fd, RXSYNC, NULL) == 0);
		not_from->rx->head = not_from->rx->cur = not_from->rx->tail;
		send_frames(&peer, turn, 1, 2);
		receive_frames(from, turn, 1, 2);
		CHECK(not_from->rx->head == not_from->rx->tail);
	}
	/* A second handle has the host rings alone. */
	CHECK(new_request(second, name, &alone, NULL) == 0 && alone.mem_id == all.mem_id);
	struct interface *interface = (struct interface *)((char *)both.interface - all.offset + alone.offset);
	CHECK(interface->ring_ofs[0] == 0 && interface->ring_ofs[2] == 0);
	CHECK((char *)interface + interface->ring_ofs[1] == (char *)stack.tx);
	int status = -1;
	pid_t child = fork();
	if (child == 0) {
		send_frames(&stack, 2, 1, 1);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	receive_frames(&peer, 2, 1, 1);
	CHECK(close(fd) == 0 && close(second) == 0);
}

/* Copies the frames of a ring to another one, as far as there is room. */
static void move(struct ring *from, struct ring *to)
{
	while (from->head != from->tail && to->head != to->tail) {
		struct slot *in = &from->slot[from->head], *out = &to->slot[to->head];
		memcpy(buffer(to, out->buf_idx), buffer(from, in->buf_idx), in->len);
		out->len = in->len, out->flags = in->flags & MOREFRAG;
		from->head = from->cur = next(from, from->head);
		to->head = to->cur = next(to, to->head);
	}
}

/* Passes all frames between a port and the host's stack behind it, until it is killed. */
static void bridge(const char *name)
{
	struct reg all = { .mode = 3 };
	int fd = open("/dev/netmap", O_RDWR);
	CHECK(new_request(fd, name, &all, NULL) == 0);
	struct port both = mapped(fd, &all);
	struct ring *to_stack = (struct ring *)((char *)both.interface + both.interface->ring_ofs[1]);
	struct ring *from_stack = (struct ring *)((char *)both.interface + both.interface->ring_ofs[3]);
	puts("ready");
	fflush(stdout);
	for (;;) {
		CHECK(poll_events(&both, POLLIN, 100) >= 0);
		move(both.rx, to_stack);
		move(from_stack, both.tx);
		CHECK(ioctl(fd, TXSYNC, NULL) == 0);
	}
}

struct attached { struct reg reg; uint32_t port, pad; };
struct made { uint32_t tx_slots, rx_slots; uint16_t tx_rings, rx_rings, mem_id, pad; };

static int old_command(int fd, uint16_t command, const char *name)
{
	struct old old = { .version = 14, .cmd = command, .arg1 = command == 1 };
	return old_request(fd, name, &old);
}

/* Ports that are made, put on a switch, taken off it and removed, by both kinds of requests. */
static void stay(void)
{
	struct attached attached = { .reg = { .mode = 1 } };
	struct made made = { 0 };
	int fd = open("/dev/netmap", O_RDWR);
	int status = -1;
	/* The process that makes a port ends, and the port stays. */
	pid_t child = fork();
	if (child == 0)
		_exit(control(open("/dev/netmap", O_RDWR), 8, "v0", &made) != 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(control(fd, 8, "v0", &made) == -1 && errno == EEXIST);
	CHECK(control(fd, 8, "valemain:v1", &made) == -1 && errno == EINVAL);
	CHECK(control(fd, 3, "valewrong:v0", &attached) == -1 && errno == ENXIO);
	CHECK(control(fd, 3, "valemain:v0", &attached) == 0 && attached.reg.mem_id > 1);
	CHECK(control(fd, 3, "valemain:v0", &attached) == -1 && errno == EBUSY);
	CHECK(control(fd, 9, "v0", NULL) == -1 && errno == EBUSY);
	/* A port of the file stays as the file has it. */
	CHECK(control(fd, 3, "valemain:a", &attached) == -1 && errno == EBUSY);
	CHECK(control(fd, 4, "valemain:a", NULL) == -1 && errno == EBUSY);
	CHECK(control(fd, 9, "a", NULL) == -1 && errno == EINVAL);
	struct port one = opened("valemain:v0", "new", 0), other = opened("a", "new", 0);
	one.wait = other.wait = "poll";
	meet(&one, &other);
	send_frames(&one, 0, BATCH, 1);
	receive_frames(&other, 0, BATCH, 1);
	CHECK(control(fd, 4, "valemain:v0", NULL) == -1 && errno == EBUSY);
	CHECK(close(one.fd) == 0);
	for (int turn = 0; control(fd, 4, "valemain:v0", NULL) != 0; turn++)
		CHECK(errno == EBUSY && turn < 2000 && usleep(10000) == 0);
	CHECK(control(fd, 4, "valemain:v0", NULL) == -1 && errno == ENXIO);
	attached.reg.mode = 4;
	CHECK(control(fd, 3, "valemain:v0", &attached) == -1 && errno == EINVAL);
	/* With host rings, which it does not have. */
	attached.reg.mode = 3;
	CHECK(control(fd, 3, "valemain:v0", &attached) == 0 && control(fd, 4, "valemain:v0", NULL) == 0);
	CHECK(control(fd, 9, "v0", NULL) == 0 && control(fd, 9, "v0", NULL) == -1 && errno == ENXIO);
	CHECK(old_command(fd, 6, "v1") == 0 && old_command(fd, 1, "valemain:v1") == 0);
	CHECK(old_command(fd, 7, "v1") == -1 && errno == EBUSY);
	CHECK(old_command(fd, 2, "valemain:v1") == 0 && old_command(fd, 7, "v1") == 0);
}

int main(int count, char **words)
{
	CHECK(count == 4);
	if (strcmp(words[1], "watch") == 0)
		watch(words[2], atoi(words[3]));
	else if (strcmp(words[1], "spy") == 0)
		spy(words[2], atoi(words[3]));
	else if (strcmp(words[1], "host") == 0)
		host(words[2], words[3]);
	else if (strcmp(words[1], "bridge") == 0)
		bridge(words[2]);
	else if (strcmp(words[1], "stay") == 0)
		stay();
	else
		CHECK(!"a task");
	return 0;
}
