package wire

import (
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// A status travels in headers, of which many clients take 8 KiB in all: one that is longer would
// reach its caller as another failure, which tells neither what is wrong nor that nothing was done.

// mostStatus is how many bytes of headers a status may have, beside others of the call, and
// mostText how many its texts have if they have to be cut.
const (
	mostStatus = 7 << 10
	mostText   = 768
)

// fit leaves out of a failure what has no room beside its text: first what holders say of
// themselves, then holders but the first, then the ends of the texts.
func fit(text string, f *pb.Failure) string {
	if sizeOf(text, f) > mostStatus {
		for _, h := range f.Holders {
			h.Meta, h.Value = "", nil
		}
	}
	for len(f.Holders) > 1 && sizeOf(text, f) > mostStatus {
		f.Holders = f.Holders[:len(f.Holders)-1]
	}
	if sizeOf(text, f) > mostStatus {
		text, f.Cause = cut(text), cut(f.Cause)
	}
	return text
}

// sizeOf is about how many bytes of headers a failure takes: its text by itself, where all but
// printable ASCII takes three bytes each, and once more with the details in base64.
func sizeOf(text string, f *pb.Failure) int {
	size := len(text)
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' || text[i] == '%' {
			size += 2
		}
	}
	return size + (len(text)+proto.Size(f)+128)*4/3
}

func cut(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}
