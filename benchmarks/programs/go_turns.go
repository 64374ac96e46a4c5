// The scenarios of the benchmarks that Go takes part in: it reads "SCENARIO SIZE WORKERS" lines and answers each with
// nanoseconds an operation, after a tenth of the work has been done to warm up.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

const batch = 5000
const chain = 1000

var sink int

//go:noinline
func noop() { sink = 0 }

// spawn starts goroutines from outside and waits until all have run.
func spawn(size int) int {
	var left sync.WaitGroup
	left.Add(size)
	for i := 0; i < size; i++ {
		go left.Done()
	}
	left.Wait()
	return size
}

// spawnLocal does the same inside a goroutine.
func spawnLocal(size int) int {
	ended := make(chan int)
	go func() { ended <- spawn(size) }()
	return <-ended
}

// submit starts goroutines, each with a channel of its own for its result, and then takes every result.
func submit(size int) int {
	for start := 0; start < size; start += batch {
		count := batch
		if size-start < batch {
			count = size - start
		}
		results := make([]chan int, count)
		for i := range results {
			result := make(chan int, 1)
			results[i] = result
			go func() { noop(); result <- 1 }()
		}
		for _, result := range results {
			if <-result != 1 {
				panic("a goroutine gave another result than its own")
			}
		}
	}
	return size
}

// hop starts the next goroutine of a chain and ends.
func hop(left int, ended chan<- bool) {
	if left == 0 {
		ended <- true
		return
	}
	go hop(left-1, ended)
}

func chains(size int) int {
	hops := chain
	if size < hops {
		hops = size
	}
	ended := make(chan bool)
	for i := 0; i < size/hops; i++ {
		go hop(hops-1, ended)
		<-ended
	}
	return size / hops * hops
}

func fork(n int) int {
	if n < 2 {
		return n
	}
	result := make(chan int, 1)
	go func() { result <- fork(n - 1) }()
	other := fork(n - 2)
	return other + <-result
}

// fib takes the largest n whose fib(n) forks at most size times, but at least 2.
func fib(size int) int {
	n, value, following := 2, 1, 2
	for value+following-1 <= size {
		n, value, following = n+1, following, value+following
	}
	if got := fork(n); got != value {
		panic(fmt.Sprintf("fib(%d) must be %d, not %d", n, value, got))
	}
	return following - 1
}

func main() {
	scenarios := map[string]func(int) int{
		"spawn": spawn, "spawnlocal": spawnLocal, "submit": submit, "chain": chains, "fib": fib}
	fmt.Println("ready", runtime.Version())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var name string
		var size, workers int
		if _, err := fmt.Sscan(lines.Text(), &name, &size, &workers); err != nil || scenarios[name] == nil {
			panic("a line must be SCENARIO SIZE WORKERS, not " + lines.Text())
		}
		runtime.GOMAXPROCS(workers)
		runtime.GC()
		scenarios[name](size/10 + 1)
		start := time.Now()
		done := scenarios[name](size)
		fmt.Println(float64(time.Since(start).Nanoseconds()) / float64(done))
	}
}
