/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a ring in a PCI device, which docs/nic.md describes, by vfio-pci or by the device's files in sysfs.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
		return ringway_fail(errno, name);
	got = fscanf(from, "%x", number);
	fclose(from);
	return got == 1 ? 0 : ringway_fail(EINVAL, name);
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
		ringway_fail(errno, name);
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
		ringway_fail(errno, "mapping the device's memory");
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
		return ringway_fail(errno, "the device's IOMMU group");
	ring->vfio[0] = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	snprintf(name, sizeof name, "/dev/vfio/%s", group);
	ring->vfio[1] = open(name, O_RDWR | O_CLOEXEC);
	if (ring->vfio[1] < 0) {
		snprintf(name, sizeof name, "/dev/vfio/noiommu-%s", group);
		ring->vfio[1] = open(name, O_RDWR | O_CLOEXEC);
		iommu = VFIO_NOIOMMU_IOMMU;
	}
	if (ring->vfio[0] < 0 || ring->vfio[1] < 0)
		return ringway_fail(errno, "the device's IOMMU group");
	if (ioctl(ring->vfio[1], VFIO_GROUP_SET_CONTAINER, &ring->vfio[0])
	    || ioctl(ring->vfio[0], VFIO_SET_IOMMU, iommu))
		return ringway_fail(errno, "the device's IOMMU");
	real = realpath(path, NULL);
	if (!real)
		return ringway_fail(errno, path);
	address = strrchr(real, '/') + 1;
	ring->vfio[2] = ioctl(ring->vfio[1], VFIO_GROUP_GET_DEVICE_FD, address);
	free(real);
	if (ring->vfio[2] < 0)
		return ringway_fail(errno, "the device");
	ring->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	irq.set.argsz = sizeof(struct vfio_irq_set) + sizeof(int);
	irq.set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
	irq.set.index = VFIO_PCI_MSIX_IRQ_INDEX;
	irq.set.count = 1;
	memcpy(irq.set.data, &ring->call, sizeof(int));
	if (ring->call < 0 || become_master(ring->vfio[2]) || ioctl(ring->vfio[2], VFIO_DEVICE_SET_IRQS, &irq))
		return ringway_fail(errno, "the device's interrupt");
	return ringway_watch(ring, ring->call, EPOLLIN | EPOLLET);
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

int ringway_open_pci(struct ringway *ring, const char *path)
{
	unsigned vendor, device;
	char driver[64] = "";
	static const char OTHER[] = "the PCI device is not one of a port of kind ring-pci";
	bool by_vfio;
	size_t *size = &ring->registers_size;

	if (read_number(path, "vendor", &vendor) || read_number(path, "device", &device))
		return -1;
	if (vendor != 0x1af4 || device != 0x1110)
		return ringway_broken(OTHER);
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
		return ringway_broken(OTHER);
	}
	__atomic_store_n((uint32_t *)(ring->registers + RESET), 1, __ATOMIC_RELEASE);
	if (__atomic_load_n((uint32_t *)(ring->registers + STATUS), __ATOMIC_ACQUIRE) != 1)
		return ringway_broken("the PCI device made no ring: is its port up?");
	ring->memory = by_vfio ? map_region(ring->vfio[2], 2, &ring->mapped) : map_resource(path, 2, &ring->mapped);
	return ring->memory ? ringway_attach(ring, 0) : -1;
}
