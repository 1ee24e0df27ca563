// Merges sorted Parquet files into one with parquet-go, and prints what it took, as JSON.
//
// A job comes as JSON on standard input: `benches/python/tools_go.py` writes it. The schema is that
// of the first file: no struct describes the rows.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	module = "github.com/parquet-go/parquet-go"
	// The limit of PyArrow's dictionaries, too. Without one, a column of unique values keeps all
	// of them in its dictionary: the merges took up to twice the time, and files were larger.
	dictionaryBytes = 1 << 20
	writeBytes      = 1 << 20
)

type column struct {
	Name       string `json:"name"`
	Descending bool   `json:"descending"`
}

type job struct {
	Sources      []string `json:"sources"`
	Out          string   `json:"out"`
	Key          []column `json:"key"`
	RowGroupRows int64    `json:"row_group_rows"`
}

type told struct {
	WallS    float64 `json:"wall_s"`
	CPUS     float64 `json:"cpu_s"`
	RSSBytes int64   `json:"rss_bytes"`
	Versions string  `json:"versions"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var asked job
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("no job on standard input: %w", err)
	}
	before, started := cpuSeconds(), time.Now()
	if err := merge(asked); err != nil {
		return err
	}
	wall, cpu := time.Since(started).Seconds(), cpuSeconds()-before
	return json.NewEncoder(os.Stdout).Encode(told{wall, cpu, peakBytes(), versions()})
}

// merge writes the rows of all sources in order. Rows stream through the merged view: what is held
// are pages of the sources and the compressed pages of one row group of the output.
func merge(asked job) error {
	var schema *parquet.Schema
	var groups []parquet.RowGroup
	for _, path := range asked.Sources {
		source, err := os.Open(path)
		if err != nil {
			return err
		}
		defer source.Close()
		info, err := source.Stat()
		if err != nil {
			return err
		}
		file, err := parquet.OpenFile(source, info.Size())
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if schema == nil {
			schema = file.Schema()
		}
		groups = append(groups, file.RowGroups()...)
	}
	sorting := parquet.SortingColumns(order(asked.Key)...)
	// The schema is given because a merged one would have its columns in order of their names.
	merged, err := parquet.MergeRowGroups(groups, schema, parquet.SortingRowGroupConfig(sorting))
	if err != nil {
		return err
	}
	out, err := os.Create(asked.Out)
	if err != nil {
		return err
	}
	defer out.Close()
	buffered := bufio.NewWriterSize(out, writeBytes)
	writer := parquet.NewGenericWriter[any](
		buffered,
		schema,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}), // about level 3
		parquet.DictionaryMaxBytes(dictionaryBytes),
		parquet.MaxRowsPerRowGroup(asked.RowGroupRows),
		parquet.SortingWriterConfig(sorting),
	)
	// Like CopyRows, but for stretches of one source, which go column by column instead of by row.
	if _, err := writer.WriteRowGroup(merged); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return out.Close()
}

func order(key []column) []parquet.SortingColumn {
	var columns []parquet.SortingColumn
	for _, part := range key {
		if part.Descending {
			columns = append(columns, parquet.Descending(part.Name))
		} else {
			columns = append(columns, parquet.Ascending(part.Name))
		}
	}
	return columns
}

func usage() syscall.Rusage {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails for an unknown `who` alone
	return used
}

func cpuSeconds() float64 {
	used := usage()
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// peakBytes is the most memory this process had. On Linux not Maxrss, which starts at that of the
// process that started this one.
func peakBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			rest, found := strings.CutPrefix(line, "VmHWM:")
			if !found {
				continue
			}
			if kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64); err == nil {
				return kib * 1024
			}
		}
	}
	return int64(usage().Maxrss) // bytes on macOS
}

func versions() string {
	found := "parquet-go"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				found += " " + strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return found + " (Go " + strings.TrimPrefix(runtime.Version(), "go") + ")"
}
