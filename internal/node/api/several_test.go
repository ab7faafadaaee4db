package api_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Several names are told at one revision, in the order of the request; what makes no
// sense is refused.
func TestInspect_Several(t *testing.T) {
	r := serve(t)
	c := pb.NewInspectServiceClient(r.conn)
	for _, name := range []string{"a", "b"} {
		r.want(200, "POST", "/v1/locks/"+name+":acquire", `{}`)
	}
	got := must[*pb.InspectResponse](t)(c.Inspect(r.ctx, &pb.InspectRequest{Names: []string{"b", "free", "a"}}))
	if len(got.Resources) != 2 || got.Resources[0].Name != "b" || got.Resources[1].Name != "a" || got.Revision == 0 {
		t.Errorf("got %v", got)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, bad := range []*pb.InspectRequest{
		{Name: "a", Names: []string{"b"}}, {After: "x", Names: []string{"b"}}, {Limit: 1, Names: []string{"b"}}, {Names: many},
		{Names: []string{"a", ""}}, {Names: []string{strings.Repeat("x", 513)}},
	} {
		_, err := c.Inspect(r.ctx, bad)
		wantCode(t, err, codes.InvalidArgument)
	}
	must[*pb.InspectResponse](t)(c.Inspect(r.ctx, &pb.InspectRequest{Names: many[:1000]}))
}

// A thousand names can be asked for together, however long each is, over gRPC and over HTTP.
func TestInspect_LongNames(t *testing.T) {
	r := serve(t)
	c := pb.NewInspectServiceClient(r.conn)
	names := make([]string, 1000)
	for i := range names {
		names[i] = strings.Repeat("x", 509) + fmt.Sprintf("%03d", i)
	}
	r.want(200, "POST", "/v1/locks/"+names[7]+":acquire", `{}`)
	got := must[*pb.InspectResponse](t)(c.Inspect(r.ctx, &pb.InspectRequest{Names: names}))
	if len(got.Resources) != 1 || got.Resources[0].Name != names[7] {
		t.Errorf("%d resources, want one", len(got.Resources))
	}
	body := `{"names":["` + strings.Join(names, `","`) + `"]}`
	r.want(200, "POST", pb.InspectService_Inspect_FullMethodName, body)
	_, err := c.Inspect(r.ctx, &pb.InspectRequest{Names: append(names, names...)})
	wantCode(t, err, codes.InvalidArgument)
	_, err = c.List(r.ctx, &pb.ListRequest{Prefix: strings.Repeat("x", 100<<10)})
	wantCode(t, err, codes.ResourceExhausted)
}
