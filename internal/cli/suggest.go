package cli

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// subcommand is for commands that only group others: whatever is no command below
// them is a mistake, and not a wish for help.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := didYouMean(nearest(args[0], names), "see "+cmd.CommandPath()+" --help")
	return usagef(hint, "unknown command %q for %q", args[0], cmd.CommandPath())
}

// helpCommand tells about a command as --help does. One that is not there is a
// mistake, here as elsewhere.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND…]", Short: "Tell about a command", Example: "  holdfast help lock\n  holdfast help kv get",
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // with settings that are wrong too
		ValidArgsFunction: completeHelp,
		RunE: func(c *cobra.Command, args []string) error {
			at, rest, err := c.Root().Find(args)
			if at == nil || err != nil {
				at, rest = c.Root(), args
			}
			if at.HasAvailableSubCommands() && len(rest) > 0 {
				return subcommand(at, rest)
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// completeHelp completes the commands below those that are given.
func completeHelp(c *cobra.Command, args []string, begin string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	at, _, err := c.Root().Find(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, sub := range at.Commands() {
		if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begin) {
			found = append(found, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// flagError adds what may have been meant to an error of a flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flag of a command that is not there
			return subcommand(cmd, cmd.Flags().Args())
		}
		return usagef(unknownFlag(cmd, unknown), "%w", err)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef(durationHint(bad.GetFlag(), "--"+bad.GetFlag().Name+" ", bad.GetValue()), "%w", err)
	}
	return err
}

// unknownFlag is what may have been meant instead of a flag, or nothing.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	word := unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		if hint := negativeHint(cmd, short); hint != "" {
			return hint
		}
		word = short // -wait for --wait
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	var near []string
	for _, n := range nearest(word, names) {
		near = append(near, "--"+n)
	}
	return didYouMean(near, belongsTo(cmd, word))
}

// negativeHint is how a command that takes numbers is given a negative one, or nothing.
func negativeHint(cmd *cobra.Command, digits string) string {
	if _, err := strconv.ParseUint(digits, 10, 64); err != nil {
		return ""
	}
	words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(cmd.Use))
	i := slices.IndexFunc(words, func(w string) bool { return w == "N" || w == "OLD" })
	if i < 0 {
		return ""
	}
	words[i] = "-" + digits
	return "put -- before negative numbers: " + cmd.CommandPath() + " -- " + strings.Join(words[1:], " ")
}

// belongsTo tells which commands below have a flag that was given before them, or
// nothing.
func belongsTo(cmd *cobra.Command, flag string) string {
	var paths []string
	for _, c := range cmd.Commands() {
		if c.LocalFlags().Lookup(flag) != nil {
			paths = append(paths, c.CommandPath())
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return "--" + flag + " is for " + strings.Join(paths, ", ") + ": put it behind the command"
}

// durationHint is what may have been meant by a value that a flag has refused, or
// nothing; how is the flag as it is written before its value.
func durationHint(f *pflag.Flag, how, value string) string {
	if f.Value.Type() != "duration" {
		return ""
	}
	if n, err := strconv.ParseFloat(value, 64); err == nil && n > 0 {
		seconds := strconv.FormatFloat(n, 'f', -1, 64) + "s" // 1e9 is no number of a duration
		if _, err := time.ParseDuration(seconds); err == nil {
			return "did you mean " + how + seconds + "? durations have a unit"
		}
	}
	return "durations have a unit, such as 500ms, 5s, 10m or 24h"
}

// argument is a name as a shell takes it behind a command: quoted if need be, and not
// mistaken for a flag.
func argument(name string) string {
	if strings.ContainsFunc(name, special) || name == "" {
		return "-- '" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	if name[0] == '-' {
		return "-- " + name
	}
	return name
}

// special says whether a shell may take r for anything but itself.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@%+,", r)
}

// didYouMean is a hint of words that are near, or another one if none is.
func didYouMean(near []string, otherwise string) string {
	if len(near) == 0 {
		return otherwise
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// mostNear is how many words are suggested.
const mostNear = 3

// nearest are the candidates that a mistyped word may have meant, the nearest first:
// those that it begins, and those that are few slips away, at most one for every
// four letters and one more.
func nearest(word string, candidates []string) (near []string) {
	word = strings.ToLower(word)
	slips := map[string]int{}
	for _, c := range candidates {
		if slips[c] = distance(word, c); len(word) >= 3 && strings.HasPrefix(c, word) {
			slips[c] = min(slips[c], 1)
		}
		if slips[c] <= 1+len(word)/4 && slips[c] < len(c) {
			near = append(near, c)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(slips[a], slips[b]) })
	if len(near) == 0 {
		return nil
	}
	if best := slips[near[0]]; best <= 1 { // then the others are no guess
		near = slices.DeleteFunc(near, func(c string) bool { return slips[c] > best })
	}
	return near[:min(len(near), mostNear)]
}

// distance is how many slips make b of a: a letter left out, added, changed, or two
// neighbours swapped.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ(a[i-1], b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func differ(a, b byte) int {
	if a == b {
		return 0
	}
	return 1
}
