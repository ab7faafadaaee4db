package cli

import "strings"

// trustHint says what to do about an error that came from TLS, or the lack of it; "": it did not. A backend that refuses a
// certificate, or has one that is refused, is up. What the parameters are called depends on the backend: only of Holdfast's own
// server, of which gRPC and status tell, they are named.
func trustHint(text string) string {
	has := func(part string) bool { return strings.Contains(text, part) }
	tls := has("tls: ") || has("x509: ")
	handshake := has("authentication handshake failed") && !has("authentication handshake failed: context ")
	server := handshake || has("error reading server preface") || has(" does not answer: ")
	switch {
	case has("ask the leader") && tls:
		return "the nodes do not trust the certificate that their leader shows to clients: see --tls-cert of that node and --tls-ca of the others (holdfast serve); until then another may lead: holdfast member lead NUMBER"
	case has("looked like an HTTP/1.1 header"):
		return "it runs, and speaks TLS only: write holdfasts:// in --url"
	case server && has("does not look like a TLS handshake"), handshake && !tls:
		return "it runs, and may not speak TLS: write holdfast:// in --url, or start it with --tls-cert and --tls-key"
	case server && tls:
		return "it runs, and the certificates do not fit: see holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key in --url"
	case tls:
		return "it runs, and does not speak TLS, or the certificates do not fit: docs/backends.md has the TLS parameters of each backend"
	}
	return ""
}
