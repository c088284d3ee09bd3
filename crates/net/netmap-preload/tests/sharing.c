/* A netmap program for the tests: handles in several processes, pipes, and what dies or lies while it has them. */
#define _GNU_SOURCE
#include "netmap.h"
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static const char *self;

/* What a program has to know beside the descriptor, as netmap's own tests pass it. */
struct passed { uint64_t size, offset; };

static struct port mapped(int fd, struct passed what)
{
	struct port port = { .fd = fd, .wait = "poll" };
	char *memory = mmap(NULL, what.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	port.interface = (struct interface *)(memory + what.offset);
	port.tx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[0]);
	port.rx = (struct ring *)((char *)port.interface + port.interface->ring_ofs[1 + port.interface->host_tx]);
	return port;
}

static int registered(const char *name, struct passed *what)
{
	struct reg reg = { .mode = 1 };
	int fd = open("/dev/netmap", O_RDWR);
	CHECK(fd >= 0 && new_request(fd, name, &reg, NULL) == 0);
	*what = (struct passed){ reg.memsize, reg.offset };
	return fd;
}

static void send_fd(int socket, int fd, struct passed what)
{
	char space[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec bytes = { &what, sizeof what };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	part->cmsg_level = SOL_SOCKET, part->cmsg_type = SCM_RIGHTS, part->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(part), &fd, sizeof fd);
	CHECK(sendmsg(socket, &message, 0) == sizeof what);
}

static int receive_fd(int socket, struct passed *what)
{
	int fd;
	char space[CMSG_SPACE(sizeof fd)];
	struct iovec bytes = { what, sizeof *what };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	CHECK(recvmsg(socket, &message, 0) == sizeof *what && CMSG_FIRSTHDR(&message) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void succeeds(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Another program with the descriptor `fd`, as its number 3. */
static pid_t start(const char *task, int fd, const char *words[2], int preload)
{
	pid_t child = fork();
	if (child == 0) {
		CHECK(fd == 3 || dup2(fd, 3) == 3);
		if (!preload)
			unsetenv("LD_PRELOAD");
		execl(self, self, task, words[0], words[1], NULL);
		exit(9);
	}
	return child;
}

/* Frames go on in a program that got the descriptor, and the one that opened it has closed it. */
static void pass(const char *name, const char *frames)
{
	int sockets[2];
	struct passed what;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	int fd = registered(name, &what);
	struct port port = mapped(fd, what);
	ask(&port, 0, 64);
	pid_t child = start("take", sockets[1], (const char *[]){ name, frames }, 1);
	send_fd(sockets[0], fd, what);
	CHECK(close(fd) == 0);
	succeeds(child);
}

static void take(const char *frames)
{
	struct passed what;
	int fd = receive_fd(3, &what);
	struct port port = mapped(fd, what);
	ask(&port, 64, atoi(frames) - 64);
	CHECK(close(fd) == 0);
}

/* Frames go on in the program that this one executes. */
static void become(const char *name, const char *frames)
{
	struct passed what;
	char numbers[64];
	int fd = registered(name, &what);
	struct port port = mapped(fd, what);
	ask(&port, 0, 64);
	CHECK(fd == 3 || dup2(fd, 3) == 3);
	snprintf(numbers, sizeof numbers, "%llu %llu", (unsigned long long)what.size, (unsigned long long)what.offset);
	execl(self, self, "go-on", numbers, frames, NULL);
	exit(9);
}

static void go_on(const char *numbers, const char *frames)
{
	unsigned long long size, offset;
	CHECK(sscanf(numbers, "%llu %llu", &size, &offset) == 2);
	struct port port = mapped(3, (struct passed){ size, offset });
	ask(&port, 64, atoi(frames) - 64);
}

/* A child that has this program's memory closes its copy of the handle, as `posix_spawn` and others do. */
static void spawn(const char *name, const char *frames)
{
	struct passed what;
	int fd = registered(name, &what);
	struct port port = mapped(fd, what);
	for (int turn = 0; turn < 3; turn++) {
		pid_t child = vfork();
		if (child == 0) {
			if (turn < 2)
				close(fd);
			else
				dup2(fd, 100);
			execl("/bin/true", "true", NULL);
			_exit(9);
		}
		succeeds(child);
	}
	ask(&port, 0, atoi(frames));
	CHECK(close(fd) == 0 && close(100) == -1);
}

/* A process without the library has a socket that it can't map; the one that passed it goes on. */
static void pass_to_a_stranger(const char *name, const char *frames)
{
	int sockets[2];
	struct passed what;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	int fd = registered(name, &what);
	struct port port = mapped(fd, what);
	pid_t child = start("be-a-stranger", sockets[1], (const char *[]){ name, frames }, 0);
	send_fd(sockets[0], fd, what);
	succeeds(child);
	ask(&port, 0, atoi(frames));
}

static void be_a_stranger(void)
{
	struct passed what;
	int fd = receive_fd(3, &what);
	CHECK(mmap(NULL, what.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(ioctl(fd, TXSYNC, NULL) == -1);
	/* Nobody but the socket itself may send to it. */
	struct sockaddr_un address;
	socklen_t len = sizeof address;
	int other = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	CHECK(sendto(other, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&address, len) == -1 && errno == EPERM);
}

static struct port shared_port;

static void *sync_always(void *end)
{
	while (!*(volatile int *)end)
		ioctl(shared_port.fd, TXSYNC, NULL), ioctl(shared_port.fd, RXSYNC, NULL);
	return NULL;
}

/* Children of a program whose thread syncs all the time. Parent and child take turns with the rings. */
static void fork_always(const char *name, const char *frames)
{
	struct passed what;
	int before = descriptors(), end = 0, fd = registered(name, &what), turns = atoi(frames) / 640;
	pthread_t thread;
	shared_port = mapped(fd, what);
	CHECK(pthread_create(&thread, NULL, sync_always, &end) == 0);
	int clean = 0;
	for (int turn = 0; turn < 50; turn++) {
		int status = -1;
		struct timespec first, last;
		clock_gettime(CLOCK_MONOTONIC, &first);
		pid_t child = fork();
		/* Of what the library has beside the handle, whose port the thread syncs, a child has nothing. */
		if (child == 0)
			_exit(descriptors() != before + 1);
		clock_gettime(CLOCK_MONOTONIC, &last);
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
		clean += status == 0;
		/* Unless the thread did not run while it had the port: then the fork goes on without. */
		int64_t took = (last.tv_sec - first.tv_sec) * 1000 + (last.tv_nsec - first.tv_nsec) / 1000000;
		CHECK(status == 0 || took >= 199);
	}
	CHECK(clean > 25);
	end = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	for (int turn = 0; turn < turns; turn++) {
		end = 0;
		CHECK(pthread_create(&thread, NULL, sync_always, &end) == 0);
		usleep(1000);
		pid_t child = fork();
		if (child == 0) {
			/* Its own thread is not there; the parent's does not touch positions. */
			ask(&shared_port, turn * 640, 320);
			_exit(0);
		}
		succeeds(child);
		end = 1;
		CHECK(pthread_join(thread, NULL) == 0);
		ask(&shared_port, turn * 640 + 320, 320);
	}
}

static void *open_silent(void *begun)
{
	struct reg reg = { .mode = 1 };
	int fd = open("/dev/netmap", O_RDWR);
	*(volatile int *)begun = 1;
	CHECK(new_request(fd, "silent", &reg, NULL) == -1 && errno == EBUSY);
	CHECK(close(fd) == 0);
	return NULL;
}

/* A child that is made while another thread opens a port whose fabric does not answer: both go on, and the child opens
 * ports of its own. */
static void fork_while_opening(const char *name, const char *frames)
{
	struct passed what;
	int fd = registered(name, &what), begun = 0, listener = socket(AF_UNIX, SOCK_STREAM, 0);
	struct port port = mapped(fd, what);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;
	snprintf(address.sun_path, sizeof address.sun_path, "%s/silent", getenv("RINGWAY_RUN"));
	CHECK(mkdir(address.sun_path, 0700) == 0);
	strcat(address.sun_path, "/silent.sock");
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
	CHECK(pthread_create(&thread, NULL, open_silent, &begun) == 0);
	while (!*(volatile int *)&begun)
		usleep(1000);
	usleep(100000);
	pid_t child = fork();
	if (child == 0) {
		ask(&port, 0, 64);
		CHECK(close(registered("v{1", &what)) == 0);
		_exit(0);
	}
	succeeds(child);
	CHECK(pthread_join(thread, NULL) == 0);
	ask(&port, 64, atoi(frames) - 64);
	CHECK(unlink(address.sun_path) == 0 && close(listener) == 0);
	*strrchr(address.sun_path, '/') = 0;
	CHECK(rmdir(address.sun_path) == 0);
}

/* Children that are killed while they sync: the port goes on. */
static void kill_always(const char *name, const char *frames)
{
	struct passed what;
	int end = 0, fd = registered(name, &what);
	shared_port = mapped(fd, what);
	for (int turn = 0; turn < 100; turn++) {
		pid_t child = fork();
		if (child == 0)
			sync_always(&end);
		usleep(turn * 37 % 3000);
		CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
		CHECK(ioctl(fd, TXSYNC, NULL) == 0 && ioctl(fd, RXSYNC, NULL) == 0);
	}
	ask(&shared_port, 0, atoi(frames));
}

/* What a pipe's programs have in common is filled with anything while the other end uses it. */
static void lie(const char *name)
{
	struct passed what;
	int fd = registered(name, &what);
	char line[512];
	uint64_t number = 88172645463325252;
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t *first = NULL, *last = NULL;
	CHECK(fd >= 0 && maps != NULL);
	while (fgets(line, sizeof line, maps) != NULL)
		if (strstr(line, "ringway-pipe") != NULL)
			CHECK(sscanf(line, "%p-%p", (void **)&first, (void **)&last) == 2);
	CHECK(first != NULL);
	puts("ready");
	fflush(stdout);
	time_t end = time(NULL) + 3;
	for (uint32_t turn = 0; turn % 1024 != 0 || time(NULL) < end; turn++) {
		number ^= number << 13, number ^= number >> 7, number ^= number << 17;
		/* Mostly the indices and the slots. */
		uint64_t words = turn % 8 == 0 ? last - first : turn % 2 == 0 ? 512 : 4096;
		first[(number >> 16) % words] = turn % 3 == 0 ? number : number & 0x7ff;
	}
}

/* The other end of `lie`: whatever it finds, its own positions are right, and it ends. */
static void endure(const char *name)
{
	struct passed what;
	struct port port = mapped(registered(name, &what), what);
	puts("ready");
	fflush(stdout);
	time_t end = time(NULL) + 3;
	for (uint32_t turn = 0; turn % 1024 != 0 || time(NULL) < end; turn++) {
		CHECK(ioctl(port.fd, TXSYNC, NULL) == 0 && ioctl(port.fd, RXSYNC, NULL) == 0);
		CHECK(port.tx->tail < port.tx->num_slots && port.rx->tail < port.rx->num_slots);
		for (; port.rx->head != port.rx->tail; port.rx->head = port.rx->cur = next(port.rx, port.rx->head))
			CHECK(port.rx->slot[port.rx->head].len <= 2048 && port.rx->slot[port.rx->head].buf_idx >= 2);
		for (int at = 0; at < 8 && port.tx->head != port.tx->tail; at++) {
			port.tx->slot[port.tx->head].len = 60;
			port.tx->head = port.tx->cur = next(port.tx, port.tx->head);
		}
	}
}

/* Frames that nobody takes are not lost, but no more are taken. */
static void block(const char *name, const char *frames)
{
	struct passed what;
	struct port port = mapped(registered(name, &what), what);
	uint32_t given = 0;
	for (int turn = 0; turn < 3; turn++) {
		for (; port.tx->head != port.tx->tail; port.tx->head = port.tx->cur = next(port.tx, port.tx->head)) {
			struct slot *slot = &port.tx->slot[port.tx->head];
			put_frame(buffer(port.tx, slot->buf_idx), given, 1);
			slot->len = length(given++);
		}
		struct pollfd one = { .fd = port.fd, .events = POLLOUT };
		CHECK(poll(&one, 1, 20) == 0);
	}
	CHECK(given == port.tx->num_slots - 1);
	puts("ready");
	fflush(stdout);
	send_frames(&port, given, atoi(frames) - given, 1);
	CHECK(close(port.fd) == 0);
}

static void drain(const char *name, const char *frames)
{
	struct passed what;
	struct port port = mapped(registered(name, &what), what);
	receive_frames(&port, 0, atoi(frames), 1);
}

/* Both ends, of a port that nobody has, in one memory: buffers move from one ring to the other. */
static void join(const char *name)
{
	char first[64], second[64];
	snprintf(first, sizeof first, "%s{7", name);
	snprintf(second, sizeof second, "%s}7", name);
	struct reg one = { .mode = 1 }, two = { .mode = 1 };
	int fds[2] = { open("/dev/netmap", O_RDWR), open("/dev/netmap", O_RDWR) };
	CHECK(new_request(fds[0], first, &one, NULL) == 0 && new_request(fds[1], second, &two, NULL) == 0);
	CHECK(one.mem_id == two.mem_id && one.memsize == two.memsize && one.offset != two.offset);
	struct port a = mapped(fds[0], (struct passed){ one.memsize, one.offset });
	struct interface *interface = (struct interface *)((char *)a.interface - one.offset + two.offset);
	struct ring *rx = (struct ring *)((char *)interface + interface->ring_ofs[2]);
	send_frames(&a, 0, 10, 1);
	for (uint32_t at = 0; at < 10; at++) {
		struct pollfd wait = { .fd = fds[1], .events = POLLIN };
		CHECK(poll(&wait, 1, 20000) == 1);
		struct slot *slot = &rx->slot[rx->head], *other = &a.tx->slot[a.tx->head];
		check_frame(buffer(a.tx, slot->buf_idx), slot->len, at, 1);
		/* A frame is sent again from the buffer in which it was received. */
		uint32_t number = other->buf_idx;
		other->buf_idx = slot->buf_idx, other->len = slot->len, other->flags = CHANGED;
		slot->buf_idx = number, slot->flags = CHANGED;
		a.tx->head = a.tx->cur = next(a.tx, a.tx->head);
		rx->head = rx->cur = next(rx, rx->head);
		CHECK(ioctl(fds[0], TXSYNC, NULL) == 0);
		CHECK(poll(&wait, 1, 20000) == 1);
		slot = &rx->slot[rx->head];
		if (at == 9)
			check_frame(buffer(a.tx, slot->buf_idx), slot->len, 0, 1);
	}
}

/* A handle in a message, whose sender has closed it: the pipe's end stays. */
static void leave(const char *name)
{
	int sockets[2];
	struct passed what, other;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	int fd = registered(name, &what);
	send_fd(sockets[0], fd, what);
	CHECK(close(fd) == 0);
	struct reg reg = { .mode = 1 };
	int late = open("/dev/netmap", O_RDWR);
	CHECK(new_request(late, name, &reg, NULL) == -1 && errno == EBUSY);
	fd = receive_fd(sockets[1], &what);
	struct port port = mapped(fd, what);
	CHECK(port.interface->ring_ofs[0] != 0 && ioctl(fd, TXSYNC, NULL) == 0);
	CHECK(close(fd) == 0 && close(late) == 0);
	fd = registered(name, &other);
	CHECK(close(fd) == 0);
}

int main(int count, char **words)
{
	CHECK(count == 4);
	const char *task = words[1], *name = words[2], *frames = words[3];
	self = words[0];
	if (strcmp(task, "pass") == 0)
		pass(name, frames);
	else if (strcmp(task, "take") == 0)
		take(frames);
	else if (strcmp(task, "exec") == 0)
		become(name, frames);
	else if (strcmp(task, "spawn") == 0)
		spawn(name, frames);
	else if (strcmp(task, "go-on") == 0)
		go_on(name, frames);
	else if (strcmp(task, "stranger") == 0)
		pass_to_a_stranger(name, frames);
	else if (strcmp(task, "be-a-stranger") == 0)
		be_a_stranger();
	else if (strcmp(task, "fork") == 0)
		fork_always(name, frames);
	else if (strcmp(task, "fork-while-opening") == 0)
		fork_while_opening(name, frames);
	else if (strcmp(task, "kill") == 0)
		kill_always(name, frames);
	else if (strcmp(task, "lie") == 0)
		lie(name);
	else if (strcmp(task, "endure") == 0)
		endure(name);
	else if (strcmp(task, "block") == 0)
		block(name, frames);
	else if (strcmp(task, "drain") == 0)
		drain(name, frames);
	else if (strcmp(task, "leave") == 0)
		leave(name);
	else if (strcmp(task, "join") == 0)
		join(name);
	else
		CHECK(!"a task");
	return 0;
}
