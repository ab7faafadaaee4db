package cli

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// shells are those that commands can be completed in.
var shells = map[string]func(root *cobra.Command, w io.Writer) error{
	"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
	"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	"zsh":        (*cobra.Command).GenZshCompletion,
}

func (a *app) completionCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{Use: "completion SHELL", Short: "Print a script that completes commands in a shell", Args: cobra.ExactArgs(1), ValidArgs: names,
		Long:    "Print a script that completes commands and flags: for " + strings.Join(names, ", ") + ".",
		Example: "  source <(holdfast completion bash)",
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := shells[args[0]]
			if !ok {
				return usagef(didYouMean(nearest(args[0], names), "there are "+strings.Join(names, ", ")), "no completion for the shell %q", args[0])
			}
			return write(c.Root(), a.out)
		}}
}
