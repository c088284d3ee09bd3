/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of libpcap on one device, which tests compare with what they send:
 *
 *   calls DEVICE send HEX COUNT    sends a frame so many times
 *   calls DEVICE ask HEX           sends a frame, then prints the first frame that the port gets
 *   calls DEVICE select COUNT      receives so many frames one by one, without blocking, when select() says so
 *   calls DEVICE nano COUNT        prints the time in nanoseconds, the length and the captured length of so many frames
 *   calls DEVICE break             waits for a frame until another thread calls pcap_breakloop()
 *   calls DEVICE timeout           prints for how many milliseconds a call waits that may wait for 200
 *   calls list                     prints the names of all devices
 */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define LONGEST 65535

static void fail(pcap_t *pcap, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pcap_geterr(pcap));
	exit(1);
}

/* Reads bytes in hexadecimal. */
static size_t read_hex(const char *text, unsigned char *bytes)
{
	size_t len = 0;

	while (len < LONGEST && sscanf(text + 2 * len, "%2hhx", &bytes[len]) == 1)
		len++;
	return len;
}

static void print(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *bytes)
{
	bpf_u_int32 i;

	(void)user;
	for (i = 0; i < header->caplen; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

static void print_header(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *bytes)
{
	(void)user;
	(void)bytes;
	printf("%lld.%09ld %u %u\n", (long long)header->ts.tv_sec, (long)header->ts.tv_usec, header->len,
	       header->caplen);
}

static void send_frame(pcap_t *pcap, const char *hex, int count)
{
	static unsigned char frame[LONGEST];
	size_t len = read_hex(hex, frame);
	int i;

	for (i = 0; i < count; i++)
		if (pcap_inject(pcap, frame, len) != (int)len)
			fail(pcap, "pcap_inject");
	printf("sent %d\n", count);
}

static void select_frames(pcap_t *pcap, int count)
{
	char errors[PCAP_ERRBUF_SIZE];
	int fd = pcap_get_selectable_fd(pcap), got;

	if (pcap_setnonblock(pcap, 1, errors) != 0)
		fail(pcap, "pcap_setnonblock");
	while (count > 0) {
		struct timeval time = {20, 0};
		fd_set readable;

		FD_ZERO(&readable);
		FD_SET(fd, &readable);
		if (select(fd + 1, &readable, NULL, NULL, &time) == 0) {
			fprintf(stderr, "nothing is readable\n");
			exit(1);
		}
		got = pcap_dispatch(pcap, 1, print, NULL);
		if (got < 0)
			fail(pcap, "pcap_dispatch");
		count -= got;
	}
}

static void *break_loop(void *pcap)
{
	usleep(200000);
	pcap_breakloop(pcap);
	return NULL;
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void run(pcap_t *pcap, int argc, char **argv)
{
	const char *call = argv[2];
	int count = argc > 3 ? atoi(argv[argc - 1]) : 0;

	if (strcmp(call, "send") == 0 && argc == 5)
		send_frame(pcap, argv[3], count);
	else if (strcmp(call, "ask") == 0 && argc == 4) {
		if (pcap_setdirection(pcap, PCAP_D_OUT) != 0)
			fail(pcap, "pcap_setdirection");
		send_frame(pcap, argv[3], 1);
		while (pcap_dispatch(pcap, 1, print, NULL) == 0)
			;
	} else if (strcmp(call, "select") == 0)
		select_frames(pcap, count);
	else if (strcmp(call, "nano") == 0 && pcap_loop(pcap, count, print_header, NULL) < 0)
		fail(pcap, "pcap_loop");
	else if (strcmp(call, "break") == 0) {
		pthread_t thread;

		pthread_create(&thread, NULL, break_loop, pcap);
		printf("%d\n", pcap_loop(pcap, -1, print, NULL));
		pthread_join(thread, NULL);
	} else if (strcmp(call, "timeout") == 0) {
		long began = milliseconds();
		int got = pcap_dispatch(pcap, -1, print, NULL);

		printf("%d %ld\n", got, milliseconds() - began);
	}
}

static int list(void)
{
	char errors[PCAP_ERRBUF_SIZE];
	pcap_if_t *devices, *device;

	if (pcap_findalldevs(&devices, errors) != 0) {
		fprintf(stderr, "%s\n", errors);
		return 1;
	}
	for (device = devices; device != NULL; device = device->next)
		printf("%s\n", device->name);
	pcap_freealldevs(devices);
	return 0;
}

int main(int argc, char **argv)
{
	char errors[PCAP_ERRBUF_SIZE];
	pcap_t *pcap;

	if (argc == 2 && strcmp(argv[1], "list") == 0)
		return list();
	if (argc < 3) {
		fprintf(stderr, "usage: calls DEVICE CALL [ARGUMENT...]\n");
		return 2;
	}
	pcap = pcap_create(argv[1], errors);
	if (pcap == NULL) {
		fprintf(stderr, "%s\n", errors);
		return 1;
	}
	pcap_set_snaplen(pcap, 40);
	pcap_set_timeout(pcap, strcmp(argv[2], "break") == 0 ? 0 : 200);
	if (strcmp(argv[2], "nano") == 0)
		pcap_set_tstamp_precision(pcap, PCAP_TSTAMP_PRECISION_NANO);
	if (pcap_activate(pcap) < 0)
		fail(pcap, "pcap_activate");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	run(pcap, argc, argv);
	pcap_close(pcap);
	return 0;
}
