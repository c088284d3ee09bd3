/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring's memory, its two queues and their frames, as docs/programs.md describes them. The other side is not trusted: each
 * of its indices and slots is read once into a local, and checked.
 */
#include "private.h"

#include <errno.h>
#include <string.h>

/* A frame has at most so many slots; all but its last have the flag. */
enum { FRAGMENTS = 64, MOREFRAG = 0x20 };

struct slot {
	uint16_t buf_idx, len, flags;
	uint8_t offload[10];
};

/* Memory */

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

int ringway_attach(struct ringway *ring, uint32_t end)
{
	struct header *h = &ring->header;
	bool second;

	memcpy(h, ring->memory, sizeof *h);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (memcmp(h->magic, MAGIC, sizeof MAGIC))
		return ringway_broken("the memory is not a ring");
	if (h->version != 1)
		return ringway_broken("the ring has another version: use the library of the same release");
	if (!is_valid(h, ring->mapped))
		return ringway_broken("the ring's memory is smaller than its header says");
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

int ringway_room(struct ringway *ring, uint32_t wanted, uint32_t *free_slots)
{
	struct side *tx = &ring->tx;
	uint32_t peer;

	*free_slots = tx->slots - (tx->next - tx->peer);
	if (*free_slots >= wanted)
		return 0;
	peer = __atomic_load_n(cell(ring, tx->ring, CONSUMER, INDEX), __ATOMIC_ACQUIRE);
	if (peer - tx->peer > tx->published - tx->peer)
		return ringway_broken("the other side's index moved by more than the ring's slots");
	tx->peer = peer;
	*free_slots = tx->slots - (tx->next - peer);
	return 0;
}

int ringway_available(struct ringway *ring, uint32_t wanted, uint32_t *filled)
{
	struct side *rx = &ring->rx;
	uint32_t peer;

	*filled = rx->peer - rx->next;
	if (*filled >= wanted)
		return 0;
	peer = __atomic_load_n(cell(ring, rx->ring, PRODUCER, INDEX), __ATOMIC_ACQUIRE);
	if (peer - rx->peer > rx->slots - (rx->peer - rx->published))
		return ringway_broken("the other side's index moved by more than the ring's slots");
	rx->peer = peer;
	*filled = peer - rx->next;
	return 0;
}

static uint32_t slots_for(const struct ringway *ring, size_t len)
{
	return len ? (uint32_t)((len + ring->header.slot_size - 1) / ring->header.slot_size) : 1;
}

uint32_t ringway_most_slots(const struct ringway *ring)
{
	return ring->tx.slots < FRAGMENTS ? ring->tx.slots : FRAGMENTS;
}

size_t ringway_longest(const struct ringway *ring)
{
	return (size_t)ringway_most_slots(ring) * ring->header.slot_size;
}

/* Frames */

int ringway_tx(struct ringway *ring, const void *frame, size_t len)
{
	const uint8_t *from = frame;
	uint32_t slots, free_slots;

	if (len > ringway_longest(ring))
		return ringway_fail(EMSGSIZE, "the frame");
	slots = slots_for(ring, len);
	if (ringway_room(ring, slots, &free_slots))
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
			return ringway_broken("the other side used a buffer number that the ring doesn't have");
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

	if (ringway_available(ring, 1, &filled))
		return -1;
	if (!filled)
		return 0;
	do {
		const uint8_t *from;
		size_t piece;

		slot = read_slot(ring, ring->rx.ring, ring->rx.next + ahead);
		from = buffer(ring, slot);
		if (!from)
			return ringway_broken("the other side used a buffer number that the ring doesn't have");
		piece = whole >= size ? 0 : size - whole;
		memcpy((uint8_t *)frame + (piece ? whole : 0), from, piece < slot.len ? piece : slot.len);
		whole += slot.len;
		ahead++;
		if (!(slot.flags & MOREFRAG))
			break;
		if (ahead == 1 && ringway_available(ring, FRAGMENTS, &filled))
			return -1;
		most = filled < FRAGMENTS ? filled : FRAGMENTS;
	} while (ahead < most);
	if (slot.flags & MOREFRAG)
		return ringway_broken("the other side published half a frame");
	ring->rx.next += ahead;
	return (ssize_t)whole;
}

int ringway_rx_view(struct ringway *ring, const void **frame, size_t *len)
{
	struct slot slot;
	uint32_t filled;

	if (ringway_available(ring, 1, &filled))
		return -1;
	if (!filled)
		return 0;
	slot = read_slot(ring, ring->rx.ring, ring->rx.next);
	if (slot.flags & MOREFRAG)
		return 2;
	*frame = buffer(ring, slot);
	*len = slot.len;
	if (!*frame)
		return ringway_broken("the other side used a buffer number that the ring doesn't have");
	ring->rx.next++;
	return 1;
}

void *ringway_tx_view(struct ringway *ring, size_t *size)
{
	struct slot slot = { 0 };
	uint32_t free_slots;
	void *at;

	if (ringway_room(ring, 1, &free_slots))
		return NULL;
	if (!free_slots) {
		ringway_fail(EAGAIN, "the ring");
		return NULL;
	}
	slot.buf_idx = read_slot(ring, ring->tx.ring, ring->tx.next).buf_idx;
	at = buffer(ring, slot);
	if (!at)
		ringway_broken("the other side used a buffer number that the ring doesn't have");
	*size = ring->header.slot_size;
	return at;
}

int ringway_tx_commit(struct ringway *ring, size_t len)
{
	struct slot slot = { .len = (uint16_t)len };
	uint32_t free_slots;

	if (len > ring->header.slot_size)
		return ringway_fail(EMSGSIZE, "the frame");
	if (ringway_room(ring, 1, &free_slots))
		return -1;
	if (!free_slots)
		return 0;
	slot.buf_idx = read_slot(ring, ring->tx.ring, ring->tx.next).buf_idx;
	write_slot(ring, ring->tx.ring, ring->tx.next++, slot);
	return 1;
}
