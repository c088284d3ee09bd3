// SPDX-License-Identifier: GPL-2.0
/*
 * A driver for Ringway's emulated cards 82540EM and 82574L with send combining and the shared block (CSB).
 *
 * combine=1: while the interrupt for transmitted frames is outstanding, doorbells are only noted; the interrupt's poll
 * writes the newest. csb=1: both sides exchange indices and flags in a page of memory, and access registers only when
 * the other side asks for it; the card must offer it (subsystem 0x1101), and needs MSI. Emulated cards need no set-up of
 * their PHY, so there is none.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>

#define RING 256
#define BUFFER 2048
#define CSB_SUBSYSTEM 0x1101

static bool combine = true;
module_param(combine, bool, 0444);
MODULE_PARM_DESC(combine, "note doorbells while a transmit interrupt is outstanding");
static bool csb = true;
module_param(csb, bool, 0444);
MODULE_PARM_DESC(csb, "use the shared block if the card offers it");

enum {
	CTRL = 0x0000, STATUS = 0x0008, ICR = 0x00c0, IMS = 0x00d0, IMC = 0x00d8, RCTL = 0x0100, TCTL = 0x0400,
	RDBAL = 0x2800, RDBAH = 0x2804, RDLEN = 0x2808, RDH = 0x2810, RDT = 0x2818, CSBAL = 0x2830, CSBAH = 0x2834,
	CSBTXKICK = 0x2838, TDBAL = 0x3800, TDBAH = 0x3804, TDLEN = 0x3808, TDH = 0x3810, TDT = 0x3818, RFCTL = 0x5008,
	MTA = 0x5200, RA = 0x5400,
};

#define CTRL_SLU BIT(6)
#define CTRL_RST BIT(26)
#define STATUS_LU BIT(1)
#define RCTL_EN BIT(1)
#define RCTL_UPE BIT(3)
#define RCTL_MPE BIT(4)
#define RCTL_BAM BIT(15)
#define RCTL_SECRC BIT(26)
#define TCTL_EN_PSP (BIT(1) | BIT(3))
/* Transmitted, receive threshold, overrun, received. */
#define CAUSES (BIT(0) | BIT(4) | BIT(6) | BIT(7))
/* End of packet, insert the CRC, report status. */
#define TX_COMMAND (BIT(24) | BIT(25) | BIT(27))
#define DONE BIT(0)
#define RX_EOP BIT(1)

/* Words of the shared block. */
enum {
	G_TDT = 0, G_NEED_TX = 1, G_NEED_RX = 2, G_ON = 3, G_RDT = 4, G_REQUEST = 5, H_NEED_TDT = 17, H_NEED_RDT = 21,
};

struct tx_descriptor {
	__le64 address;
	__le32 command;
	__le32 status;
};

struct rx_descriptor {
	__le64 address;
	__le16 length;
	__le16 checksum;
	u8 status;
	u8 errors;
	__le16 special;
};

struct card {
	struct net_device *dev;
	struct pci_dev *pdev;
	u8 __iomem *regs;
	struct napi_struct napi;
	struct delayed_work watch;
	/* The shared block, if it is in use. */
	u32 *block;
	void *page;
	dma_addr_t page_at;
	/* Transmit side, under the queue's lock. */
	struct tx_descriptor *tx;
	dma_addr_t tx_at;
	struct sk_buff *tx_skb[RING];
	dma_addr_t tx_map[RING];
	u32 tx_tail, tx_clean;
	/* The tail that the card knows, and whether it interrupts for frames up to it. */
	u32 tx_rung;
	bool tx_expected;
	u32 request;
	/* Receive side, in the poll. */
	struct rx_descriptor *rx;
	dma_addr_t rx_at;
	void *rx_data[RING];
	dma_addr_t rx_map[RING];
	u32 rx_next;
};

static inline u32 get(struct card *card, u32 at)
{
	return readl(card->regs + at);
}

static inline void put(struct card *card, u32 at, u32 value)
{
	writel(value, card->regs + at);
}

static u32 next(u32 index)
{
	return (index + 1) % RING;
}

/* Free descriptors; one stays empty. */
static u32 tx_free(struct card *card)
{
	return (card->tx_clean + RING - 1 - card->tx_tail) % RING;
}

/* Tells the card of new frames, if it must be told now. */
static void ring_tx(struct card *card)
{
	if (card->block) {
		smp_store_release(&card->block[G_TDT], card->tx_tail);
		/* The card sets its flag, then looks at the tail. */
		smp_mb();
		if (READ_ONCE(card->block[H_NEED_TDT]))
			put(card, CSBTXKICK, 1);
		return;
	}
	if (combine && card->tx_expected)
		return;
	card->tx_rung = card->tx_tail;
	card->tx_expected = true;
	put(card, TDT, card->tx_tail);
}

static void reclaim(struct card *card)
{
	while (card->tx_clean != card->tx_tail) {
		u32 index = card->tx_clean;
		struct sk_buff *skb = card->tx_skb[index];

		if (!(le32_to_cpu(READ_ONCE(card->tx[index].status)) & DONE))
			break;
		dma_rmb();
		dma_unmap_single(&card->pdev->dev, card->tx_map[index], skb->len, DMA_TO_DEVICE);
		dev_consume_skb_any(skb);
		card->tx_skb[index] = NULL;
		card->tx_clean = next(index);
	}
}

/* Asks for interrupts: the card answers each request once. */
static void ask(struct card *card, bool tx, bool rx)
{
	card->request = card->request == U32_MAX ? 1 : card->request + 1;
	WRITE_ONCE(card->block[G_REQUEST], card->request);
	smp_wmb();
	WRITE_ONCE(card->block[G_NEED_TX], tx);
	WRITE_ONCE(card->block[G_NEED_RX], rx);
	smp_mb();
}

static netdev_tx_t card_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	u32 index = card->tx_tail;
	dma_addr_t at;

	if (eth_skb_pad(skb))
		return NETDEV_TX_OK;
	at = dma_map_single(&card->pdev->dev, skb->data, skb->len, DMA_TO_DEVICE);
	if (dma_mapping_error(&card->pdev->dev, at)) {
		dev->stats.tx_dropped++;
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	/* With the shared block no interrupt tells of each frame. */
	if (card->block)
		skb_orphan(skb);
	card->tx_skb[index] = skb;
	card->tx_map[index] = at;
	card->tx[index].address = cpu_to_le64(at);
	card->tx[index].status = 0;
	card->tx[index].command = cpu_to_le32(TX_COMMAND | skb->len);
	dev->stats.tx_packets++;
	dev->stats.tx_bytes += skb->len;
	dma_wmb();
	card->tx_tail = next(index);
	if (tx_free(card) < RING / 4)
		reclaim(card);
	if (!tx_free(card)) {
		netif_stop_queue(dev);
		if (card->block) {
			ask(card, true, READ_ONCE(card->block[G_NEED_RX]));
			reclaim(card);
			if (tx_free(card))
				netif_start_queue(dev);
		}
	}
	if (!netdev_xmit_more() || netif_queue_stopped(dev))
		ring_tx(card);
	return NETDEV_TX_OK;
}

/* The poll's part of transmission. */
static void finish_tx(struct card *card)
{
	struct netdev_queue *queue = netdev_get_tx_queue(card->dev, 0);

	__netif_tx_lock(queue, smp_processor_id());
	reclaim(card);
	if (!card->block) {
		/* What was noted meanwhile; the card interrupts while it has frames. */
		card->tx_expected = card->tx_clean != card->tx_rung;
		if (card->tx_tail != card->tx_rung) {
			card->tx_expected = false;
			ring_tx(card);
		}
	}
	if (netif_queue_stopped(card->dev) && tx_free(card) >= RING / 4)
		netif_wake_queue(card->dev);
	__netif_tx_unlock(queue);
}

static bool rx_ready(struct card *card)
{
	return READ_ONCE(card->rx[card->rx_next].status) & DONE;
}

static void receive(struct card *card, u32 index)
{
	struct rx_descriptor *descriptor = &card->rx[index];
	struct net_device *dev = card->dev;
	u32 length = le16_to_cpu(descriptor->length);
	struct sk_buff *skb;

	if (!(descriptor->status & RX_EOP) || descriptor->errors || length < ETH_HLEN || length > BUFFER) {
		dev->stats.rx_errors++;
		return;
	}
	skb = napi_alloc_skb(&card->napi, length);
	if (!skb) {
		dev->stats.rx_dropped++;
		return;
	}
	dma_sync_single_for_cpu(&card->pdev->dev, card->rx_map[index], BUFFER, DMA_FROM_DEVICE);
	skb_put_data(skb, card->rx_data[index], length);
	dma_sync_single_for_device(&card->pdev->dev, card->rx_map[index], BUFFER, DMA_FROM_DEVICE);
	skb->protocol = eth_type_trans(skb, dev);
	dev->stats.rx_packets++;
	dev->stats.rx_bytes += length;
	napi_gro_receive(&card->napi, skb);
}

static int receive_some(struct card *card, int budget)
{
	int done = 0;
	u32 tail;

	while (done < budget && rx_ready(card)) {
		dma_rmb();
		receive(card, card->rx_next);
		card->rx[card->rx_next].status = 0;
		card->rx_next = next(card->rx_next);
		done++;
	}
	if (!done)
		return 0;
	dma_wmb();
	tail = (card->rx_next + RING - 1) % RING;
	if (card->block) {
		smp_store_release(&card->block[G_RDT], tail);
		smp_mb();
		if (!READ_ONCE(card->block[H_NEED_RDT]))
			return done;
	}
	put(card, RDT, tail);
	return done;
}

static int card_poll(struct napi_struct *napi, int budget)
{
	struct card *card = container_of(napi, struct card, napi);
	struct netdev_queue *queue = netdev_get_tx_queue(card->dev, 0);
	int done;

	finish_tx(card);
	done = receive_some(card, budget);
	if (done >= budget || !napi_complete_done(napi, done))
		return done;
	if (!card->block) {
		put(card, IMS, CAUSES);
		return done;
	}
	__netif_tx_lock(queue, smp_processor_id());
	ask(card, netif_queue_stopped(card->dev), true);
	__netif_tx_unlock(queue);
	/* What came before the card saw the request. */
	if (rx_ready(card))
		napi_schedule(napi);
	return done;
}

static irqreturn_t card_interrupt(int irq, void *data)
{
	struct card *card = data;

	if (!card->block) {
		if (!get(card, ICR))
			return IRQ_NONE;
		put(card, IMC, ~0);
	}
	napi_schedule(&card->napi);
	return IRQ_HANDLED;
}

static void card_watch(struct work_struct *work)
{
	struct card *card = container_of(to_delayed_work(work), struct card, watch);
	bool up = get(card, STATUS) & STATUS_LU;

	if (up != netif_carrier_ok(card->dev)) {
		if (up)
			netif_carrier_on(card->dev);
		else
			netif_carrier_off(card->dev);
	}
	schedule_delayed_work(&card->watch, HZ);
}

static void card_rx_mode(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	u32 rctl = RCTL_EN | RCTL_BAM | RCTL_SECRC, table[128] = {};
	struct netdev_hw_addr *entry;
	int i;

	if (dev->flags & IFF_PROMISC)
		rctl |= RCTL_UPE | RCTL_MPE;
	else if (dev->flags & IFF_ALLMULTI)
		rctl |= RCTL_MPE;
	netdev_for_each_mc_addr(entry, dev) {
		u32 hash = (entry->addr[4] >> 4 | entry->addr[5] << 4) & 0xfff;

		table[hash >> 5] |= BIT(hash & 31);
	}
	for (i = 0; i < 128; i++)
		put(card, MTA + 4 * i, table[i]);
	put(card, RCTL, rctl);
}

static void write_mac(struct card *card)
{
	const u8 *mac = card->dev->dev_addr;

	put(card, RA, mac[0] | mac[1] << 8 | mac[2] << 16 | (u32)mac[3] << 24);
	put(card, RA + 4, mac[4] | mac[5] << 8 | BIT(31));
}

static int card_set_mac(struct net_device *dev, void *address)
{
	int error = eth_mac_addr(dev, address);

	if (!error)
		write_mac(netdev_priv(dev));
	return error;
}

static void reset(struct card *card)
{
	put(card, IMC, ~0);
	put(card, RCTL, 0);
	put(card, TCTL, 0);
	put(card, CTRL, get(card, CTRL) | CTRL_RST);
	put(card, IMC, ~0);
	get(card, ICR);
}

static void free_rings(struct card *card)
{
	struct device *device = &card->pdev->dev;
	int i;

	for (i = 0; i < RING; i++) {
		if (card->rx_data[i]) {
			dma_unmap_single(device, card->rx_map[i], BUFFER, DMA_FROM_DEVICE);
			kfree(card->rx_data[i]);
			card->rx_data[i] = NULL;
		}
		if (card->tx_skb[i]) {
			dma_unmap_single(device, card->tx_map[i], card->tx_skb[i]->len, DMA_TO_DEVICE);
			dev_kfree_skb_any(card->tx_skb[i]);
			card->tx_skb[i] = NULL;
		}
	}
	if (card->tx)
		dma_free_coherent(device, RING * sizeof(*card->tx), card->tx, card->tx_at);
	if (card->rx)
		dma_free_coherent(device, RING * sizeof(*card->rx), card->rx, card->rx_at);
	if (card->page)
		dma_free_coherent(device, PAGE_SIZE, card->page, card->page_at);
	card->tx = NULL;
	card->rx = NULL;
	card->page = NULL;
	card->block = NULL;
}

static int alloc_rings(struct card *card)
{
	struct device *device = &card->pdev->dev;
	int i;

	card->tx = dma_alloc_coherent(device, RING * sizeof(*card->tx), &card->tx_at, GFP_KERNEL);
	card->rx = dma_alloc_coherent(device, RING * sizeof(*card->rx), &card->rx_at, GFP_KERNEL);
	card->page = dma_alloc_coherent(device, PAGE_SIZE, &card->page_at, GFP_KERNEL);
	if (!card->tx || !card->rx || !card->page)
		return -ENOMEM;
	for (i = 0; i < RING; i++) {
		void *data = kmalloc(BUFFER, GFP_KERNEL);
		dma_addr_t at;

		if (!data)
			return -ENOMEM;
		at = dma_map_single(device, data, BUFFER, DMA_FROM_DEVICE);
		if (dma_mapping_error(device, at)) {
			kfree(data);
			return -ENOMEM;
		}
		card->rx_data[i] = data;
		card->rx_map[i] = at;
		card->rx[i].address = cpu_to_le64(at);
	}
	card->tx_tail = 0;
	card->tx_clean = 0;
	card->tx_rung = 0;
	card->tx_expected = false;
	card->rx_next = 0;
	return 0;
}

static void start(struct card *card)
{
	bool offered = card->pdev->subsystem_device == CSB_SUBSYSTEM && card->pdev->msi_enabled;

	reset(card);
	put(card, CTRL, get(card, CTRL) | CTRL_SLU);
	write_mac(card);
	put(card, RFCTL, 0);
	put(card, TDBAL, lower_32_bits(card->tx_at));
	put(card, TDBAH, upper_32_bits(card->tx_at));
	put(card, TDLEN, RING * sizeof(*card->tx));
	put(card, TDH, 0);
	put(card, TDT, 0);
	put(card, RDBAL, lower_32_bits(card->rx_at));
	put(card, RDBAH, upper_32_bits(card->rx_at));
	put(card, RDLEN, RING * sizeof(*card->rx));
	put(card, RDH, 0);
	put(card, RDT, RING - 1);
	if (csb && offered) {
		card->block = card->page;
		card->block[G_RDT] = RING - 1;
		card->request = 0;
		ask(card, false, true);
		WRITE_ONCE(card->block[G_ON], 1);
		put(card, CSBAH, upper_32_bits(card->page_at));
		put(card, CSBAL, lower_32_bits(card->page_at));
	}
	card_rx_mode(card->dev);
	put(card, TCTL, TCTL_EN_PSP);
	put(card, IMS, CAUSES);
}

static int card_open(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	int error = alloc_rings(card);

	if (!error)
		error = request_irq(pci_irq_vector(card->pdev, 0), card_interrupt, IRQF_SHARED, dev->name, card);
	if (error) {
		free_rings(card);
		return error;
	}
	napi_enable(&card->napi);
	start(card);
	netif_start_queue(dev);
	card_watch(&card->watch.work);
	return 0;
}

static int card_stop(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);

	cancel_delayed_work_sync(&card->watch);
	netif_carrier_off(dev);
	netif_tx_disable(dev);
	put(card, IMC, ~0);
	napi_disable(&card->napi);
	reset(card);
	free_irq(pci_irq_vector(card->pdev, 0), card);
	free_rings(card);
	return 0;
}

static const struct net_device_ops card_ops = {
	.ndo_open = card_open,
	.ndo_stop = card_stop,
	.ndo_start_xmit = card_xmit,
	.ndo_set_rx_mode = card_rx_mode,
	.ndo_set_mac_address = card_set_mac,
	.ndo_validate_addr = eth_validate_addr,
};

static int card_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *dev;
	struct card *card;
	u32 low, high;
	u8 mac[ETH_ALEN];
	int error;

	error = pcim_enable_device(pdev);
	if (!error)
		error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (!error)
		error = pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (error)
		return error;
	pci_set_master(pdev);
	dev = devm_alloc_etherdev(&pdev->dev, sizeof(*card));
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &pdev->dev);
	card = netdev_priv(dev);
	card->dev = dev;
	card->pdev = pdev;
	card->regs = pcim_iomap_table(pdev)[0];
	reset(card);
	low = get(card, RA);
	high = get(card, RA + 4);
	memcpy(mac, &low, 4);
	memcpy(mac + 4, &high, 2);
	eth_hw_addr_set(dev, mac);
	dev->netdev_ops = &card_ops;
	dev->hw_features = 0;
	INIT_DELAYED_WORK(&card->watch, card_watch);
	netif_napi_add(dev, &card->napi, card_poll);
	error = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI | PCI_IRQ_LEGACY);
	if (error < 0)
		return error;
	pci_set_drvdata(pdev, dev);
	netif_carrier_off(dev);
	error = register_netdev(dev);
	if (error)
		pci_free_irq_vectors(pdev);
	return error;
}

static void card_remove(struct pci_dev *pdev)
{
	unregister_netdev(pci_get_drvdata(pdev));
	pci_free_irq_vectors(pdev);
}

static const struct pci_device_id card_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x100e) },
	{ PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x10d3) },
	{}
};

static struct pci_driver card_driver = {
	.name = KBUILD_MODNAME,
	.id_table = card_ids,
	.probe = card_probe,
	.remove = card_remove,
};
module_pci_driver(card_driver);

MODULE_DEVICE_TABLE(pci, card_ids);
MODULE_DESCRIPTION("Ringway's emulated 82540EM and 82574L with send combining and a shared block");
MODULE_LICENSE("GPL");
