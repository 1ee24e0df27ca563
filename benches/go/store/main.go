// Serves the files of a folder as the objects of an S3 bucket, on loopback, to read only.
//
//	go run ./store FOLDER [20ms]   prints the address; GET of http://ADDRESS/requests counts requests
//
// Each answer waits as long as is asked for. Unlike moto, it lists and reads a million objects in minutes. It does not look at signatures.
package main

import (
	"encoding/xml"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const pageKeys = 1000

type object struct {
	Key          string
	LastModified string
	ETag         string
	Size         int64
	StorageClass string
}

type folder struct {
	Prefix string
}

type page struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Name                  string
	Prefix                string
	KeyCount              int
	MaxKeys               int
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []object
	CommonPrefixes        []folder
}

type bucket struct {
	root         string
	objects      []object // by key
	lists, reads atomic.Int64
	delay        time.Duration
}

func (b *bucket) walk() error {
	return filepath.WalkDir(b.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		about, err := entry.Info()
		if err != nil {
			return err
		}
		key, err := filepath.Rel(b.root, path)
		if err != nil {
			return err
		}
		b.objects = append(b.objects, object{
			Key:          filepath.ToSlash(key),
			LastModified: about.ModTime().UTC().Format("2006-01-02T15:04:05.000Z"),
			ETag:         etag(about),
			Size:         about.Size(),
			StorageClass: "STANDARD",
		})
		return nil
	})
}

func etag(about fs.FileInfo) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%x-%x", about.ModTime().UnixNano(), about.Size()))
}

// list answers ListObjectsV2.
func (b *bucket) list(out http.ResponseWriter, request *http.Request) {
	b.lists.Add(1)
	query := request.URL.Query()
	prefix, delimiter := query.Get("prefix"), query.Get("delimiter")
	after := query.Get("continuation-token")
	if after == "" {
		after = query.Get("start-after")
	}
	answer := page{Name: "objects", Prefix: prefix, MaxKeys: pageKeys}
	for at := b.behind(prefix, after); at < len(b.objects); answer.KeyCount++ {
		found := b.objects[at]
		rest, inside := strings.CutPrefix(found.Key, prefix)
		if !inside {
			break
		}
		if answer.KeyCount == pageKeys {
			answer.IsTruncated, answer.NextContinuationToken = true, after
			break
		}
		name, _, below := strings.Cut(rest, delimiter)
		if delimiter != "" && below {
			common := prefix + name + delimiter
			answer.CommonPrefixes = append(answer.CommonPrefixes, folder{common})
			after = common + "\U0010ffff"
			at = b.behind(prefix, after)
			continue
		}
		answer.Contents = append(answer.Contents, found)
		after = found.Key
		at++
	}
	out.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(out).Encode(answer); err != nil {
		log.Print(err)
	}
}

// behind is the place of the first object with a key of prefix or greater that is behind after.
func (b *bucket) behind(prefix, after string) int {
	return sort.Search(len(b.objects), func(i int) bool {
		return b.objects[i].Key >= prefix && b.objects[i].Key > after
	})
}

func (b *bucket) serve(out http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/requests" {
		fmt.Fprintf(out, "%d lists, %d reads\n", b.lists.Load(), b.reads.Load())
		return
	}
	time.Sleep(b.delay)
	name, key, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	switch {
	case name != "objects":
		http.NotFound(out, request)
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		http.Error(out, "nothing is written", http.StatusMethodNotAllowed)
	case key == "":
		b.list(out, request)
	default:
		b.reads.Add(1)
		file, err := os.Open(filepath.Join(b.root, filepath.FromSlash(filepath.Clean("/"+key))))
		if err != nil {
			http.NotFound(out, request)
			return
		}
		defer file.Close()
		about, err := file.Stat()
		if err != nil || about.IsDir() {
			http.NotFound(out, request)
			return
		}
		out.Header().Set("ETag", etag(about))
		out.Header().Set("Content-Type", "binary/octet-stream")
		out.Header().Set("Accept-Ranges", "bytes")
		http.ServeContent(out, request, key, about.ModTime(), file)
	}
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		log.Fatal("usage: store FOLDER [DELAY]")
	}
	served := &bucket{root: os.Args[1]}
	if len(os.Args) == 3 {
		delay, err := time.ParseDuration(os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		served.delay = delay
	}
	if err := served.walk(); err != nil {
		log.Fatal(err)
	}
	sort.Slice(served.objects, func(i, k int) bool { return served.objects[i].Key < served.objects[k].Key })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("127.0.0.1:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	log.Fatal(http.Serve(listener, http.HandlerFunc(served.serve)))
}
