package transport

import (
	"bytes"
	"testing"
)

func TestHelloRefusesEveryFlip(t *testing.T) {
	good := hello{purpose: forMessages, cluster: 7, group: 1, from: 2, to: 3}.encode()
	if h, err := decodeHello(good); err != nil || h.from != 2 || h.to != 3 || h.cluster != 7 || h.group != 1 {
		t.Fatalf("got %+v, %v", h, err)
	}
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := decodeHello(bad); err == nil {
			t.Errorf("flipped bit %d was accepted", i)
		}
	}
}

func TestFrameRefusesEveryFlip(t *testing.T) {
	good := appendFrame(nil, []byte("a message"))
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if p, err := readFrame(bytes.NewReader(bad)); err == nil {
			t.Errorf("flipped bit %d was accepted as %q", i, p)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, []byte("one")), nil))
	f.Add([]byte{255, 255, 255, 0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			p, err := readFrame(r)
			if err != nil {
				return
			}
			if got := appendFrame(nil, p); !bytes.Contains(b, got) {
				t.Errorf("%q does not encode to what it was read from", p)
			}
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(hello{purpose: forSnapshot, cluster: 1, from: 1, to: 2}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x decodes to %+v", b, h)
		}
	})
}
