package filehold_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/filehold"
)

// The vectors of the library whose lock files these are.
var vectors = map[string]string{
	"":     "P6AD62YPPHO33YTKIBUM5WBQHQVBCSXA.lock",
	".":    "_LIYISOQPXAPX3NYVHPC2EK4WEOU6OW7Y.lock",
	"..":   "__G2H2MVGLQK7QVO2MAWVKSVSKM26KX5S6.lock",
	"...":  "___2ZDJLYOT376KUA5OQFR2OERKUXIH4A7R.lock",
	"LPT1": "LPT1VUGMI6NJVPIYUGXMY4K6ETA3232OR2B5.lock",
	" ":    "_ZPD253R4AYXN6RS7UP6A3FYDCXHBXKUY.lock",
	"_":    "_3VP7XSELHOF3DU4D257KSSAQD3WR4SSL.lock",

	`cool<>!/:x\zzz`: "cool_____x_zzzATJSHZSADXN7WTL4DBU6JULFTEDVFF3L.lock",

	"ABC":   "ABCZJ4QR6TVN4A3KMGQ4BUKHOWQYFRLXSB3.lock",
	"abc":   "abc56LLTQOSBT6ULGHITLS4KQEIRREMO53J.lock",
	"lower": "lowerPRE5SHQAMC324P4C6UKD4R4VMGGJMF6T.lock",

	"orders/42":     "orders_42U35THF2GKJOASEXJOTUNVMNHFCCYD4ML.lock",
	"UserAccount42": "UserAccount42K4AA2XJUS4TRNFFDQMKPIEMB6Q3TBR5E.lock",

	strings.Repeat("🦉", 63) + "123":  strings.Repeat("_", 27) + "VA7XJG3JUQKTL6AU2KWPHVQFK43N4DVW.lock",
	strings.Repeat("🦉", 63) + "1234": strings.Repeat("_", 27) + "NOLT44QRLWYINT53TY2I4H34X4AU4O46.lock",
	strings.Repeat("a", 260):         strings.Repeat("a", 27) + "XTSAJQWFKOYRBNXC6DV3HRZWQJANRKCX.lock",
}

func TestFileName(t *testing.T) {
	for name, want := range vectors {
		if got := filehold.FileName(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// Letters of other scripts stay, '-' does not, and no name is longer than 64
// characters.
func TestFileName_Readable(t *testing.T) {
	for name, want := range map[string]string{"漢字": "漢字", "a-b": "a_b", "héllo wörld": "héllo_wörld"} {
		got := filehold.FileName(name)
		if !strings.HasPrefix(got, want) || len(got) != len(want)+32+len(".lock") {
			t.Errorf("%q: %s, want it to begin with %s", name, got, want)
		}
	}
	if n := len([]rune(filehold.FileName(strings.Repeat("漢", 100)))); n != 64 {
		t.Errorf("%d characters", n)
	}
}

// Where the path would be too long the name is shortened, and at last refused.
func TestLockFile_LongPaths(t *testing.T) {
	full := filehold.FileName("orders/42")
	hash := full[len("orders_42") : len("orders_42")+32]
	for room, want := range map[int]string{len(full): full, len(full) - 1: hash, 32: hash, 31: hash[:12], 12: hash[:12], 11: ""} {
		dir := "/" + strings.Repeat("d", 4095-room-2)
		got, err := filehold.LockFile(dir, "orders/42")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("room for %d bytes: %q, %v; want %q", room, got, err, want)
		}
	}
}
