package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// A reservation is text that its caller gives back as it is: a version, five
// numbers, and a sum over them, the limiter and the key, by which a mistake is told
// from a reservation. A caller that makes one up gives back no more than what others
// have taken, as with any reservation.

// reservationVersion is the first byte.
const reservationVersion = 1

// ReservationText is what a request took as callers get it; "": nothing.
func ReservationText(r *driver.LimitRequest, v *limit.Reservation) string {
	if v.Cost == 0 {
		return ""
	}
	b := []byte{reservationVersion}
	for _, n := range [...]uint64{uint64(v.Cost), uint64(v.At), uint64(v.Until), uint64(v.Given), v.Epoch} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, reservationSum(r.Name, r.Key, b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func reservationSum(name, key string, numbers []byte) uint32 {
	sum := crc32.ChecksumIEEE([]byte(name + "\x00" + key + "\x00"))
	return crc32.Update(sum, crc32.IEEETable, numbers)
}

// readReservation is the reverse of ReservationText.
func readReservation(name, key, text string) (v limit.Reservation, err error) {
	if text == "" {
		return v, Invalid("", "the reservation is missing: what was refused has none, and needs none")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	end := len(b) - crc32.Size
	if err != nil || end < 1 || b[0] != reservationVersion || binary.BigEndian.Uint32(b[end:]) != reservationSum(name, key, b[:end]) {
		return v, notReserved()
	}
	var numbers [5]uint64
	rest := b[1:end]
	for i := range numbers {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return v, notReserved()
		}
		numbers[i], rest = n, rest[size:]
	}
	if len(rest) > 0 {
		return v, notReserved()
	}
	return limit.Reservation{Cost: int64(numbers[0]), At: int64(numbers[1]), Until: int64(numbers[2]), Given: int64(numbers[3]), Epoch: numbers[4]}, nil
}

func notReserved() error {
	return Invalid("", "the reservation is none of this limiter and key: give what was answered as it is")
}
