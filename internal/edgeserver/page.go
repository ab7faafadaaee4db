package edgeserver

import (
	"html/template"
	"net/http"
	"time"
)

// picture is what the page and /v1/nodes show.
type picture struct {
	Node       string   `json:"node"`
	Limit      string   `json:"limit"`
	Total      uint64   `json:"total"`
	Divergence uint64   `json:"divergence"`
	Agree      bool     `json:"agree"`
	SyncAge    float64  `json:"sync_age_seconds"`
	Allowed    uint64   `json:"allowed"`
	Denied     uint64   `json:"denied"`
	Over       uint64   `json:"over_admitted"`
	Keys       int      `json:"keys"`
	Link       string   `json:"link,omitempty"`
	Peers      []status `json:"peers"`
}

type status struct {
	Node  string  `json:"node"`
	Total uint64  `json:"total"`
	Lag   float64 `json:"lag_seconds"`
	Age   float64 `json:"age_seconds"`
	Agree bool    `json:"agree"`
}

func (c *Config) picture() picture {
	own, n := c.Limiter.Stats(), c.Node
	p := picture{
		Node: n.Actor().String(), Limit: c.Rate.String(), Total: n.Total(), Divergence: n.Divergence(), SyncAge: n.SyncAge().Seconds(),
		Allowed: own.Allowed, Denied: own.Denied, Over: own.Over, Keys: c.Limiter.Keys(), Peers: []status{},
	}
	if c.LinkErr != nil {
		if err := c.LinkErr(); err != nil {
			p.Link = err.Error()
		}
	}
	p.Agree = p.Divergence == 0 && p.Link == "" // what nodes said last may be all that could be heard
	for _, peer := range n.Peers() {
		p.Peers = append(p.Peers, status{peer.Actor.String(), peer.Total, peer.Lag.Seconds(), time.Since(peer.Heard).Seconds(), peer.Differs == 0})
	}
	return p
}

func (c *Config) nodes(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.picture()) }

// page needs no script: it asks to be loaded again each second.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>{{.Node}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ccc}
td.n{text-align:right;font-variant-numeric:tabular-nums}.yes{color:#0a6b2d}.no{color:#a11}
@media (prefers-color-scheme:dark){body{color:#eee;background:#111}.yes{color:#6fdc8c}.no{color:#ff8389}}</style></head><body>
<h1>Edge node {{.Node}}</h1>
<p>{{.Limit}}. {{.Allowed}} allowed, {{.Denied}} denied here; {{.Over}} above the rate on all nodes; {{.Keys}} keys.</p>
<p class="{{if .Agree}}yes{{else}}no{{end}}">{{if .Agree}}✓ All nodes agree.{{else if .Divergence}}✗ Nodes differ by up to {{.Divergence}}.{{else}}✗ It is not known whether all nodes agree.{{end}}</p>
{{with .Link}}<p class="no">✗ {{.}}</p>{{end}}
<table><thead><tr><th>node</th><th>total</th><th>lag</th><th>heard</th><th></th></tr></thead><tbody>
<tr><td>{{.Node}} (this one)</td><td class="n">{{.Total}}</td><td></td><td></td><td></td></tr>
{{range .Peers}}<tr><td>{{.Node}}</td><td class="n">{{.Total}}</td><td class="n">{{printf "%.3f s" .Lag}}</td><td class="n">{{printf "%.1f s ago" .Age}}</td>
<td class="{{if .Agree}}yes{{else}}no{{end}}">{{if .Agree}}✓ agrees{{else}}✗ differs{{end}}</td></tr>
{{else}}<tr><td colspan="5">No other node was heard.</td></tr>{{end}}</tbody></table></body></html>
`))

func (c *Config) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	page.Execute(w, c.picture())
}
