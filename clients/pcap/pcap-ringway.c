/* SPDX-License-Identifier: Apache-2.0
 *
 * A module of libpcap for the ports of running fabrics: `ringway:PORT`, `ringway:FABRIC:PORT`, `ringway:FABRIC/PORT`.
 *
 * Frames come from a child process, `ringway capture PORT -w -`: pcapng in a pipe. Filters run here, in libpcap's
 * interpreter. Frames are sent by the port's ring if it has no other program, and else by `ringway trace --inject`.
 */
#define _GNU_SOURCE
#include <config.h>

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pcap-int.h"
#include "command.h"
#include "ringway.h"

int ringway_findalldevs(pcap_if_list_t *devices, char *errors);
pcap_t *ringway_create(const char *device, char *errors, int *is_ours);

#define PREFIX "ringway:"
#define LONGEST_NAME 256
/* The longest block of a capture; ringway writes none that is longer. */
#define LONGEST_BLOCK (1u << 20)
#define BUFFER (2u * LONGEST_BLOCK)
/* Milliseconds that a fabric may take to begin a capture or answer, and that programs may take to list ports. */
#define BEGIN_TIMEOUT 10000
#define LIST_TIMEOUT 2000
/* Milliseconds that a frame to send waits for room in the ring, and that closing waits for frames to be taken. */
#define ROOM_TIMEOUT 1000

#define SECTION 0x0a0d0d0au
#define STATISTICS 5u
#define PACKET 6u
#define LITTLE_ORDER 0x1a2b3c4du
#define OPTION_FLAGS 2
#define OPTION_DROPPED 5
/* PACKET_HOST and PACKET_OUTGOING, which expressions with `inbound` and `outbound` compare. */
#define HOST 0
#define OUTGOING 4

struct module {
	struct command child;
	/* Readable while a frame waits in `buffer`. With the pipe it is in the epoll that programs select on. */
	int pending;
	bool is_pending;
	/* Written by pcap_breakloop(). */
	int broken;
	bool is_nonblocking, is_over;
	/* Bytes of libpcap's buffer that were read and not yet passed on. */
	size_t begin, end;
	bool has_begun;
	uint64_t received, dropped;
	/* The filter for frames to the fabric, and for frames from it. */
	struct bpf_insn *filters[2];
	/* For frames to send. */
	struct ringway *ring;
	bool is_foreign;
	char fabric[LONGEST_NAME], port[LONGEST_NAME];
};

/* Leaves a reason for pcap_geterr(). */
static int __attribute__((format(printf, 2, 3))) fail(pcap_t *p, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(p->errbuf, sizeof p->errbuf, format, values);
	va_end(values);
	return PCAP_ERROR;
}

/* The fabric and the port that a line of the list names: `interface {value=ringway:FABRIC:PORT}{display=...}`. */
static bool listed(char *line, char **fabric, char **port)
{
	static const char intro[] = "interface {value=" PREFIX;
	char *end;

	if (strncmp(line, intro, sizeof intro - 1) != 0 || (end = strchr(line, '}')) == NULL)
		return false;
	*end = '\0';
	*fabric = line + sizeof intro - 1;
	*port = strchr(*fabric, ':');
	if (*port == NULL)
		return false;
	*(*port)++ = '\0';
	return true;
}

/* The list of all ports, to be freed; NULL if there is none. */
static char *list(void)
{
	const char *const words[] = {"ringway", "capture", "--extcap-interfaces", NULL};
	const size_t size = 1u << 20;
	char *text = malloc(size), why[PCAP_ERRBUF_SIZE];

	if (text != NULL && command_ask(words, text, size, LIST_TIMEOUT, why, sizeof why) < 0) {
		free(text);
		return NULL;
	}
	return text;
}

int ringway_findalldevs(pcap_if_list_t *devices, char *errors)
{
	char *text = list(), *rest = NULL, *line, *fabric, *port;
	int failed = 0;

	for (line = text ? strtok_r(text, "\n", &rest) : NULL; line && !failed; line = strtok_r(NULL, "\n", &rest)) {
		char name[2 * LONGEST_NAME + sizeof PREFIX], about[2 * LONGEST_NAME + 32];

		if (!listed(line, &fabric, &port) || strlen(fabric) >= LONGEST_NAME || strlen(port) >= LONGEST_NAME)
			continue;
		snprintf(name, sizeof name, PREFIX "%s:%s", fabric, port);
		snprintf(about, sizeof about, "Port %s of Ringway's fabric %s", port, fabric);
		if (add_dev(devices, name, PCAP_IF_UP | PCAP_IF_RUNNING | PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE, about,
			    errors) == NULL)
			failed = -1;
	}
	free(text);
	return failed;
}

/* Whether `name`, with a slash at `slash`, is a fabric and a port. Names of ports may have slashes too. */
static bool is_fabric_and_port(const char *name, const char *slash)
{
	char *text = list(), *rest = NULL, *line, *fabric, *port;
	size_t len = (size_t)(slash - name);
	bool is = false;

	for (line = text ? strtok_r(text, "\n", &rest) : NULL; line && !is; line = strtok_r(NULL, "\n", &rest))
		is = listed(line, &fabric, &port) && strlen(fabric) == len && strncmp(fabric, name, len) == 0 &&
		     strcmp(port, slash + 1) == 0;
	free(text);
	return is;
}

/* Reads the names of the fabric and the port. */
static int read_name(pcap_t *p, struct module *m)
{
	const char *name = p->opt.device + sizeof PREFIX - 1, *end = strchr(name, ':');
	const char *given = getenv("RINGWAY_FABRIC");
	size_t len;

	if (strlen(name) >= LONGEST_NAME) {
		fail(p, "the name of a port has less than %d bytes", LONGEST_NAME);
		return PCAP_ERROR_NO_SUCH_DEVICE;
	}
	if (end == NULL && (end = strchr(name, '/')) != NULL && !is_fabric_and_port(name, end))
		end = NULL;
	len = end != NULL ? (size_t)(end - name) : 0;
	memcpy(m->fabric, name, len);
	m->fabric[len] = '\0';
	strcpy(m->port, end != NULL ? end + 1 : name);
	if (end == NULL && given != NULL && strlen(given) < LONGEST_NAME)
		strcpy(m->fabric, given);
	if (m->port[0] != '\0')
		return 0;
	fail(p, "name a port: " PREFIX "PORT, or " PREFIX "FABRIC:PORT");
	return PCAP_ERROR_NO_SUCH_DEVICE;
}

/* Words of a command for the fabric, which end with NULL; `words` has room for 3 more than `command`. */
static void address(const struct module *m, const char **words, const char *const *command)
{
	*words++ = "ringway";
	if (m->fabric[0] != '\0') {
		*words++ = "--fabric";
		*words++ = m->fabric;
	}
	while ((*words++ = *command++) != NULL)
		;
}

static uint32_t word(const u_char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

static uint16_t half(const u_char *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

/* An option with this code in the options from `at` to `end`, with at least `size` bytes; NULL: there is none. */
static const u_char *option(const u_char *at, const u_char *end, uint16_t code, size_t size)
{
	while (end - at >= 4) {
		size_t len = half(at + 2), padded = (len + 3) & ~(size_t)3;

		if (half(at) == 0 || padded > (size_t)(end - at) - 4)
			return NULL;
		if (half(at) == code)
			return len >= size ? at + 4 : NULL;
		at += 4 + padded;
	}
	return NULL;
}

/* The length of the block at the beginning of the buffer; 0: it is not there yet; -1: it is no block. */
static ssize_t block(const pcap_t *p, const struct module *m)
{
	const u_char *at = (const u_char *)p->buffer + m->begin;
	size_t there = m->end - m->begin;
	uint32_t len;

	if (there < 12)
		return 0;
	len = word(at + 4);
	if (len < 12 || len > LONGEST_BLOCK || len % 4 != 0)
		return -1;
	if (there < len)
		return 0;
	if (word(at + len - 4) != len || (word(at) == SECTION && word(at + 8) != LITTLE_ORDER))
		return -1;
	return (ssize_t)len;
}

/* Reads more bytes: 1 if there were some or the end, 0 if not, -1 if it failed. */
static int fill(pcap_t *p, struct module *m)
{
	u_char *buffer = p->buffer;
	ssize_t got;

	if (m->is_over)
		return 1;
	/* A block is at most half of the buffer, so that there is always room for the rest of one. */
	if (m->begin > 0 && p->bufsize - m->end < LONGEST_BLOCK) {
		memmove(buffer, buffer + m->begin, m->end - m->begin);
		m->end -= m->begin;
		m->begin = 0;
	}
	got = read(m->child.out, buffer + m->end, p->bufsize - m->end);
	if (got > 0)
		m->end += (size_t)got;
	else if (got == 0)
		m->is_over = true;
	else if (errno == EAGAIN || errno == EINTR)
		return 0;
	else {
		pcap_fmt_errmsg_for_errno(p->errbuf, PCAP_ERRBUF_SIZE, errno, "reading the capture");
		return -1;
	}
	return 1;
}

/* Makes the descriptor that programs select on readable while there is something in the buffer that select can't see. */
static void show_pending(pcap_t *p, struct module *m)
{
	bool is_pending = m->is_over || block(p, m) != 0;
	uint64_t one = 1;

	if (is_pending == m->is_pending)
		return;
	if (is_pending ? write(m->pending, &one, sizeof one) > 0 : read(m->pending, &one, sizeof one) > 0)
		m->is_pending = is_pending;
}

/* Passes a packet on, of these bytes of a block; whether it was accepted. */
static bool deliver(pcap_t *p, struct module *m, const u_char *at, size_t len, pcap_handler callback,
		    u_char *user)
{
	struct pcap_pkthdr header;
	const u_char *data = at + 28, *end = at + len - 4, *flags;
	uint32_t captured, padded;
	bool is_out = false;
	uint64_t time;

	if (len < 32 || (captured = word(at + 20)) > len - 32)
		return false;
	padded = (captured + 3) & ~3u;
	if (padded <= len - 32 && (flags = option(data + padded, end, OPTION_FLAGS, 4)) != NULL)
		is_out = (word(flags) & 3) == 2;
	if (p->direction != PCAP_D_INOUT && is_out != (p->direction == PCAP_D_OUT))
		return false;
	header.len = word(at + 24) > captured ? word(at + 24) : captured;
	if (m->filters[is_out] != NULL && pcap_filter(m->filters[is_out], data, header.len, captured) == 0)
		return false;
	header.caplen = captured < (uint32_t)p->snapshot ? captured : (uint32_t)p->snapshot;
	time = (uint64_t)word(at + 12) << 32 | word(at + 16);
	header.ts.tv_sec = (time_t)(time / 1000000000);
	header.ts.tv_usec = (suseconds_t)(time % 1000000000);
	if (p->opt.tstamp_precision != PCAP_TSTAMP_PRECISION_NANO)
		header.ts.tv_usec /= 1000;
	m->received++;
	callback(user, &header, data);
	return true;
}

static void read_statistics(struct module *m, const u_char *at, size_t len)
{
	const u_char *dropped = len < 24 ? NULL : option(at + 20, at + len - 4, OPTION_DROPPED, 8);

	m->has_begun = true;
	if (dropped != NULL)
		memcpy(&m->dropped, dropped, 8);
}

/* The capture has ended: says why. */
static int ended(pcap_t *p, struct module *m)
{
	char why[PCAP_ERRBUF_SIZE / 2];
	int status;

	if (m->child.errors >= 0) {
		command_complaint(&m->child, why, sizeof why);
		command_close(&m->child.errors);
		status = command_finish(&m->child, false);
		if (why[0] == '\0')
			snprintf(why, sizeof why, status <= 0 ? "the fabric went down" : "the program `ringway` ended");
		fail(p, "%s: %s", m->port, why);
		/* No such port, no such fabric: exit codes of `ringway`. */
		return !m->has_begun && (status == 4 || status == 5) ? PCAP_ERROR_NO_SUCH_DEVICE : PCAP_ERROR;
	}
	return fail(p, "%s: the capture has ended", m->port);
}

/* Takes what the port sends to this program as its peer: the capture shows it. */
static void drain(struct module *m)
{
	u_char none;

	if (m->ring == NULL)
		return;
	while (ringway_rx(m->ring, &none, 0) > 0)
		;
	if (ringway_sync(m->ring) != 0) {
		ringway_close(m->ring);
		m->ring = NULL;
	}
}

/* Waits for bytes or pcap_breakloop() until `end`, 0: for ever. Whether one of them may be there. */
static bool wait_for_bytes(struct module *m, int64_t end)
{
	struct pollfd polled[2] = {{.fd = m->child.out, .events = POLLIN}, {.fd = m->broken, .events = POLLIN}};
	int ready = poll(polled, 2, end == 0 ? -1 : command_until(end));
	uint64_t value;

	/* The flag was set before, so that it is seen now. Who sees it earlier leaves the descriptor readable. */
	if (ready > 0 && polled[1].revents != 0 && read(m->broken, &value, sizeof value) < 0)
		return true;
	return ready != 0;
}

static int read_blocks(pcap_t *p, struct module *m, int most, pcap_handler callback, u_char *user)
{
	int64_t end = p->opt.timeout > 0 ? command_now() + p->opt.timeout : 0;
	bool is_filled = false;
	int count = 0;

	for (;;) {
		const u_char *at = (const u_char *)p->buffer + m->begin;
		ssize_t len;

		if (p->break_loop) {
			if (count > 0)
				return count;
			p->break_loop = 0;
			return PCAP_ERROR_BREAK;
		}
		len = block(p, m);
		if (len < 0) {
			return fail(p, "%s: the capture is no pcapng", m->port);
		}
		if (len > 0) {
			m->begin += (size_t)len;
			if (word(at) == STATISTICS)
				read_statistics(m, at, (size_t)len);
			else if (word(at) == PACKET && deliver(p, m, at, (size_t)len, callback, user))
				count++;
			if (!PACKET_COUNT_IS_UNLIMITED(most) && count >= most)
				return count;
			continue;
		}
		if (count > 0 || (is_filled && (m->is_nonblocking || (end != 0 && command_until(end) == 0))))
			return count;
		if (m->is_over)
			return ended(p, m);
		drain(m);
		if (!m->is_nonblocking && !wait_for_bytes(m, end))
			return 0;
		if (fill(p, m) < 0)
			return PCAP_ERROR;
		is_filled = true;
	}
}

static int read_op(pcap_t *p, int most, pcap_handler callback, u_char *user)
{
	struct module *m = p->priv;
	int count;

	/* Also while there is much to read. */
	drain(m);
	count = read_blocks(p, m, most, callback, user);
	show_pending(p, m);
	return count;
}

/* Makes the filter for one direction: a program has it as a number in place of the kernel's kind of packet. */
static struct bpf_insn *filter_of(const struct bpf_program *program, u_int kind)
{
	size_t size = program->bf_len * sizeof(struct bpf_insn);
	struct bpf_insn *copy = malloc(size);
	u_int i;

	if (copy == NULL)
		return NULL;
	memcpy(copy, program->bf_insns, size);
	for (i = 0; i < program->bf_len; i++) {
		bool is_load = BPF_CLASS(copy[i].code) == BPF_LD && BPF_MODE(copy[i].code) == BPF_ABS;

		if (is_load && copy[i].k == (bpf_u_int32)(SKF_AD_OFF + SKF_AD_PKTTYPE)) {
			copy[i].code = BPF_LD | BPF_IMM;
			copy[i].k = kind;
		}
	}
	return copy;
}

static int setfilter_op(pcap_t *p, struct bpf_program *program)
{
	struct module *m = p->priv;
	struct bpf_insn *filters[2];
	u_int i;

	for (i = 0; i < program->bf_len; i++) {
		const struct bpf_insn *at = &program->bf_insns[i];
		bool is_load = BPF_CLASS(at->code) == BPF_LD && BPF_MODE(at->code) == BPF_ABS;

		if (is_load && (bpf_int32)at->k < 0 && at->k != (bpf_u_int32)(SKF_AD_OFF + SKF_AD_PKTTYPE)) {
			return fail(p, "the filter asks for what only the kernel knows of a packet");
		}
	}
	if (install_bpf_program(p, program) < 0)
		return -1;
	filters[0] = filter_of(program, HOST);
	filters[1] = filter_of(program, OUTGOING);
	if (filters[0] == NULL || filters[1] == NULL) {
		free(filters[0]);
		free(filters[1]);
		return fail(p, "no memory for the filter");
	}
	for (i = 0; i < 2; i++) {
		free(m->filters[i]);
		m->filters[i] = filters[i];
	}
	return 0;
}

static int setdirection_op(pcap_t *p, pcap_direction_t direction)
{
	p->direction = direction;
	return 0;
}

static int stats_op(pcap_t *p, struct pcap_stat *stats)
{
	const struct module *m = p->priv;

	stats->ps_recv = (u_int)m->received;
	stats->ps_drop = (u_int)m->dropped;
	stats->ps_ifdrop = 0;
	return 0;
}

static int getnonblock_op(pcap_t *p)
{
	return ((struct module *)p->priv)->is_nonblocking;
}

static int setnonblock_op(pcap_t *p, int nonblock)
{
	((struct module *)p->priv)->is_nonblocking = nonblock != 0;
	return 0;
}

static void breakloop_op(pcap_t *p)
{
	struct module *m = p->priv;
	uint64_t one = 1;

	pcap_breakloop_common(p);
	/* The counter can't be full, and a signal's handler may do no more. */
	if (write(m->broken, &one, sizeof one) < 0)
		return;
}

/* The value of a string of a JSON object. Quotes within strings have a backslash before them, so that this finds none. */
static bool json_string(const char *json, const char *key, char *value, size_t size)
{
	char name[32];
	const char *at;
	size_t len;

	snprintf(name, sizeof name, "\"%s\":\"", key);
	at = strstr(json, name);
	if (at == NULL)
		return false;
	at += strlen(name);
	len = strcspn(at, "\"\\");
	if (at[len] != '"' || len >= size)
		return false;
	memcpy(value, at, len);
	value[len] = '\0';
	return true;
}

/* Becomes the port's peer if it is a ring without one; else `is_foreign` is set. */
static int attach(pcap_t *p, struct module *m)
{
	const char *const command[] = {"port", "show", "--json", "--", m->port, NULL};
	const char *words[9];
	char json[8192], why[PCAP_ERRBUF_SIZE / 2], kind[32], state[32], path[256];

	address(m, words, command);
	if (command_ask(words, json, sizeof json, BEGIN_TIMEOUT, why, sizeof why) != 0) {
		return fail(p, "%s: %s", m->port, why);
	}
	if (!json_string(json, "kind", kind, sizeof kind) || !json_string(json, "state", state, sizeof state) ||
	    !json_string(json, "peer", path, sizeof path) || strcmp(kind, "ring") != 0 ||
	    strcmp(state, "waiting") != 0) {
		m->is_foreign = true;
		return 0;
	}
	m->ring = ringway_open(path);
	if (m->ring != NULL)
		return 0;
	return fail(p, "%s: %s", m->port, ringway_error());
}

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0';
}

/* For programs that answer, and don't send first. */
static int become_peer(pcap_t *p, struct module *m)
{
	if (attach(p, m) != 0)
		return PCAP_ERROR;
	if (m->ring == NULL)
		return fail(p, "%s: RINGWAY_PCAP_PEER is set, but this is no ring without a program", m->port);
	return 0;
}

static int send_by_ring(pcap_t *p, struct module *m, const void *frame, size_t size)
{
	int64_t end = command_now() + ROOM_TIMEOUT;
	int sent;

	for (;;) {
		sent = ringway_tx(m->ring, frame, size);
		if (sent != 0 || command_until(end) == 0)
			break;
		drain(m);
		if (m->ring == NULL || ringway_poll(m->ring, RINGWAY_TX, command_until(end)) < 0) {
			sent = -1;
			break;
		}
	}
	if (sent > 0 && ringway_sync(m->ring) != 0)
		sent = -1;
	if (sent > 0) {
		drain(m);
		return (int)size;
	}
	if (sent == 0)
		return fail(p, "%s: there is no room to send", m->port);
	return fail(p, "%s: %s", m->port, ringway_error());
}

/* Has the fabric take the frame as if the port's peer had sent it. */
static int send_by_trace(pcap_t *p, struct module *m, const u_char *frame, size_t size)
{
	const char *command[] = {"trace", "--inject", "--json", "--", m->port, NULL, NULL};
	/* The answer has the frame once for each hop of the trace. */
	const size_t answer_size = 16u << 20;
	const char *words[10];
	char *text = malloc(2 * size + 1), *answer = malloc(answer_size), why[PCAP_ERRBUF_SIZE / 2] = "no memory";
	int status = -1;
	size_t i;

	if (text != NULL && answer != NULL) {
		for (i = 0; i < size; i++)
			snprintf(text + 2 * i, 3, "%02x", frame[i]);
		command[5] = text;
		address(m, words, command);
		status = command_ask(words, answer, answer_size, BEGIN_TIMEOUT, why, sizeof why);
		if (status == 0 && strstr(answer, "\"sent\":true") == NULL) {
			snprintf(why, sizeof why, "there is no room to send");
			status = -1;
		}
	}
	free(text);
	free(answer);
	if (status == 0)
		return (int)size;
	return fail(p, "%s: %s", m->port, why);
}

static int inject_op(pcap_t *p, const void *frame, int size)
{
	struct module *m = p->priv;

	if (size < 14 || size > 65535) {
		return fail(p, "a frame has from 14 to 65535 bytes, this one %d", size);
	}
	drain(m);
	if (m->ring == NULL && !m->is_foreign && attach(p, m) != 0)
		return PCAP_ERROR;
	if (m->ring != NULL)
		return send_by_ring(p, m, frame, (size_t)size);
	return send_by_trace(p, m, frame, (size_t)size);
}

static void cleanup_op(pcap_t *p)
{
	struct module *m = p->priv;
	int64_t end = command_now() + ROOM_TIMEOUT;
	int i;

	/* Closing a ring loses what its port has not taken. */
	while (m->ring != NULL && ringway_unsent(m->ring) > 0 && command_until(end) > 0) {
		drain(m);
		poll(NULL, 0, 1);
	}
	if (m->ring != NULL)
		ringway_close(m->ring);
	m->ring = NULL;
	command_finish(&m->child, true);
	command_close(&m->pending);
	command_close(&m->broken);
	for (i = 0; i < 2; i++) {
		free(m->filters[i]);
		m->filters[i] = NULL;
	}
	pcap_cleanup_live_common(p);
}

/* Starts the capture, and waits until it has begun. */
static int begin(pcap_t *p, struct module *m)
{
	char memory[16];
	const char *command[] = {"capture", "--quiet", "--statistics", "-w", "-", "--filter", "",
				 "--buffer", "32",	"--",	       m->port, NULL};
	const char *words[16];
	int64_t end = command_now() + BEGIN_TIMEOUT;
	int failed;

	if (p->opt.buffer_size > 0) {
		unsigned mb = ((unsigned)p->opt.buffer_size + (1u << 20) - 1) >> 20;

		snprintf(memory, sizeof memory, "%u", mb);
		command[8] = memory;
	}
	address(m, words, command);
	failed = command_start(&m->child, words);
	if (failed) {
		command_refusal(failed, p->errbuf, sizeof p->errbuf);
		return PCAP_ERROR;
	}
	while (!m->has_begun) {
		const u_char *at = (const u_char *)p->buffer + m->begin;
		ssize_t len = block(p, m);

		if (len < 0 || command_until(end) == 0) {
			return fail(p, "%s: the fabric does not begin the capture", m->port);
		}
		if (len == 0 && m->is_over)
			return ended(p, m);
		if (len == 0 && wait_for_bytes(m, end) && fill(p, m) < 0)
			return PCAP_ERROR;
		if (len > 0 && word(at) == STATISTICS)
			read_statistics(m, at, (size_t)len);
		m->begin += (size_t)len;
	}
	return 0;
}

/* The descriptor that programs select on. */
static int watch(pcap_t *p, struct module *m)
{
	struct epoll_event event = {.events = EPOLLIN};

	m->pending = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->broken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	if (m->pending < 0 || m->broken < 0 || p->fd < 0)
		return -1;
	p->selectable_fd = p->fd;
	return epoll_ctl(p->fd, EPOLL_CTL_ADD, m->pending, &event);
}

static int activate_op(pcap_t *p)
{
	struct module *m = p->priv;
	struct epoll_event event = {.events = EPOLLIN};
	int failed;

	m->child = (struct command){.out = -1, .errors = -1, .pidfd = -1};
	m->pending = m->broken = -1;
	if (p->opt.rfmon)
		return PCAP_ERROR_RFMON_NOTSUP;
	failed = read_name(p, m);
	if (failed)
		return failed;
	if (p->snapshot <= 0 || p->snapshot > MAXIMUM_SNAPLEN)
		p->snapshot = MAXIMUM_SNAPLEN;
	p->bufsize = BUFFER;
	p->buffer = malloc(p->bufsize);
	if (p->buffer == NULL || watch(p, m) != 0) {
		pcap_fmt_errmsg_for_errno(p->errbuf, PCAP_ERRBUF_SIZE, errno, "%s", m->port);
		cleanup_op(p);
		return PCAP_ERROR;
	}
	failed = begin(p, m);
	if (!failed && is_set("RINGWAY_PCAP_PEER"))
		failed = become_peer(p, m);
	if (!failed && epoll_ctl(p->fd, EPOLL_CTL_ADD, m->child.out, &event) != 0) {
		pcap_fmt_errmsg_for_errno(p->errbuf, PCAP_ERRBUF_SIZE, errno, "epoll_ctl");
		failed = PCAP_ERROR;
	}
	if (failed) {
		cleanup_op(p);
		return failed;
	}
	show_pending(p, m);
	p->linktype = DLT_EN10MB;
	p->read_op = read_op;
	p->inject_op = inject_op;
	p->setfilter_op = setfilter_op;
	p->setdirection_op = setdirection_op;
	p->getnonblock_op = getnonblock_op;
	p->setnonblock_op = setnonblock_op;
	p->stats_op = stats_op;
	p->breakloop_op = breakloop_op;
	p->cleanup_op = cleanup_op;
	return 0;
}

pcap_t *ringway_create(const char *device, char *errors, int *is_ours)
{
	static const u_int precisions[] = {PCAP_TSTAMP_PRECISION_MICRO, PCAP_TSTAMP_PRECISION_NANO};
	pcap_t *p;

	*is_ours = strncmp(device, PREFIX, sizeof PREFIX - 1) == 0;
	if (!*is_ours)
		return NULL;
	p = PCAP_CREATE_COMMON(errors, struct module);
	if (p == NULL)
		return NULL;
	p->activate_op = activate_op;
	p->tstamp_precision_list = malloc(sizeof precisions);
	if (p->tstamp_precision_list == NULL) {
		snprintf(errors, PCAP_ERRBUF_SIZE, "no memory");
		pcap_close(p);
		return NULL;
	}
	memcpy(p->tstamp_precision_list, precisions, sizeof precisions);
	p->tstamp_precision_count = 2;
	return p;
}
