// SPDX-License-Identifier: Apache-2.0

// Go's runtime has handlers of its own for all signals, on small stacks of its own, and sends itself
// SIGURG to stop threads; with cgo it shares the process with the C library.
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func notified(number syscall.Signal) {
	channel := make(chan os.Signal, 1)
	signal.Notify(channel, number)
	syscall.Kill(os.Getpid(), number)
	select {
	case got := <-channel:
		fmt.Println("got", got)
	case <-time.After(60 * time.Second):
		fmt.Println("no", number)
	}
	signal.Stop(channel)
}

func fault() {
	defer func() { fmt.Println("recovered:", recover()) }()
	var nothing *int
	fmt.Println(*nothing)
}

// Threads come and go, are stopped for the garbage collector, and call C.
func work() int {
	var group sync.WaitGroup
	var lock sync.Mutex
	total := 0
	for i := 0; i < 32; i++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			runtime.LockOSThread() // it ends with its goroutine
			for k := 0; k < 100; k++ {
				C.free(C.malloc(C.size_t(1 + k)))
				_ = make([]byte, 10000)
			}
			lock.Lock()
			total += number
			lock.Unlock()
		}(i)
	}
	group.Wait()
	runtime.GC()
	return total
}

func main() {
	for _, number := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGHUP} {
		notified(number)
	}
	fault()
	fmt.Println("sum", work())
	out, err := exec.Command("echo", "a child").Output()
	fmt.Print(string(out))
	fmt.Println(err)
	fmt.Println(exec.Command("sh", "-c", "kill -TERM $$").Run())
	fmt.Println(exec.Command("sh", "-c", "exit 3").Run())
	notified(syscall.SIGTERM)
	signal.Ignore(syscall.SIGTERM)
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	signal.Reset(syscall.SIGTERM)
	fmt.Println("the end")
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	time.Sleep(60 * time.Second)
}
