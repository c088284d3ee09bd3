// Two of gVisor's TCP/IP stacks joined by a pipe in memory, measured as benches/src/tcp/stacks does ours:
// gvisor-peer bulk|rr|crr SECONDS, gvisor-peer memory CONNECTIONS. Prints one figure.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	port   = 80
	mtu    = 1500
	block  = 1 << 16
	period = 251
)

func address(last byte) tcpip.Address {
	return tcpip.AddrFrom4([4]byte{10, 0, 0, last})
}

func host(last byte, link stack.LinkEndpoint) (*stack.Stack, error) {
	host := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	// Closed connections would take up all ports of the client.
	wait := tcpip.TCPTimeWaitTimeoutOption(10 * time.Millisecond)
	if err := host.SetTransportProtocolOption(tcp.ProtocolNumber, &wait); err != nil {
		return nil, errors.New(err.String())
	}
	if err := host.CreateNIC(1, ethernet.New(link)); err != nil {
		return nil, errors.New(err.String())
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address(last), PrefixLen: 24},
	}
	if err := host.AddProtocolAddress(1, own, stack.AddressProperties{}); err != nil {
		return nil, errors.New(err.String())
	}
	host.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	return host, nil
}

type pair struct {
	client   *stack.Stack
	listener *gonet.TCPListener
}

func newPair() (*pair, error) {
	mac := func(last byte) tcpip.LinkAddress { return tcpip.LinkAddress([]byte{2, 0, 0, 0, 0, last}) }
	one, two := pipe.New(mac(1), mac(2), mtu+header.EthernetMinimumSize)
	client, err := host(1, one)
	if err != nil {
		return nil, err
	}
	server, err := host(2, two)
	if err != nil {
		return nil, err
	}
	listener, err := gonet.ListenTCP(server, tcpip.FullAddress{Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return &pair{client, listener}, nil
}

func (pair *pair) connect() (net.Conn, net.Conn, error) {
	type result struct {
		connection net.Conn
		err        error
	}
	accepted := make(chan result, 1)
	go func() {
		connection, err := pair.listener.Accept()
		accepted <- result{connection, err}
	}()
	remote := tcpip.FullAddress{Addr: address(2), Port: port}
	client, err := gonet.DialTCP(pair.client, remote, ipv4.ProtocolNumber)
	if err != nil {
		return nil, nil, err
	}
	server := <-accepted
	return client, server.connection, server.err
}

// bulk returns Gb/s of a stream, whose bytes are compared.
func bulk(pair *pair, length time.Duration) (float64, error) {
	client, server, err := pair.connect()
	if err != nil {
		return 0, err
	}
	payload := make([]byte, period+block)
	for at := range payload {
		payload[at] = byte(at % period)
	}
	go func() {
		for sent := 0; ; sent += block {
			if _, err := client.Write(payload[sent%period:][:block]); err != nil {
				return
			}
		}
	}()
	out, received, begin := make([]byte, block), 0, time.Now()
	for time.Since(begin) < length {
		count, err := server.Read(out)
		if err != nil {
			return 0, err
		}
		if string(out[:count]) != string(payload[received%period:][:count]) {
			return 0, errors.New("the stream's bytes differ")
		}
		received += count
	}
	return float64(received) * 8e-9 / time.Since(begin).Seconds(), nil
}

// exchange passes a byte and its answer.
func exchange(client, server net.Conn) error {
	one := []byte{'x'}
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		if _, err := ends[0].Write(one); err != nil {
			return err
		}
		if _, err := io.ReadFull(ends[1], one); err != nil {
			return err
		}
	}
	return nil
}

// roundTrips returns thousands of requests a second.
func roundTrips(pair *pair, length time.Duration) (float64, error) {
	client, server, err := pair.connect()
	if err != nil {
		return 0, err
	}
	begin, count := time.Now(), 0
	for ; time.Since(begin) < length; count++ {
		if err := exchange(client, server); err != nil {
			return 0, err
		}
	}
	return float64(count) * 1e-3 / time.Since(begin).Seconds(), nil
}

// connections returns thousands of connections a second, each with a request and an answer.
func connections(pair *pair, length time.Duration) (float64, error) {
	begin, count := time.Now(), 0
	for ; time.Since(begin) < length; count++ {
		client, server, err := pair.connect()
		if err != nil {
			return 0, err
		}
		if err := exchange(client, server); err != nil {
			return 0, err
		}
		client.Close()
		server.Close()
	}
	return float64(count) * 1e-3 / time.Since(begin).Seconds(), nil
}

func inUse() float64 {
	var all runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&all)
	return float64(all.HeapAlloc + all.StackInuse)
}

// memory returns bytes of an idle connection's end.
func memory(pair *pair, number int) (float64, error) {
	before, all := inUse(), []net.Conn{}
	for range number {
		client, server, err := pair.connect()
		if err != nil {
			return 0, err
		}
		if err := exchange(client, server); err != nil {
			return 0, err
		}
		all = append(all, client, server)
	}
	time.Sleep(time.Second)
	after := inUse()
	runtime.KeepAlive(all)
	return (after - before) / float64(2*number), nil
}

func run(words []string) (float64, error) {
	if len(words) != 2 {
		return 0, errors.New("a case and a number are needed")
	}
	amount, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return 0, err
	}
	pair, err := newPair()
	if err != nil {
		return 0, err
	}
	length := time.Duration(amount * float64(time.Second))
	switch words[0] {
	case "bulk":
		return bulk(pair, length)
	case "rr":
		return roundTrips(pair, length)
	case "crr":
		return connections(pair, length)
	case "memory":
		return memory(pair, int(amount))
	}
	return 0, errors.New("the case is bulk, rr, crr or memory")
}

func main() {
	figure, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(figure)
}
