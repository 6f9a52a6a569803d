// Threads that carry out jobs in the order of their coming; the thread that makes the jobs helps at the end.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace braze::codegen {

class Workers {
 public:
  explicit Workers(size_t threads) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { drain(true); });
  }
  ~Workers() { join(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void push(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(job));
    }
    ready_.notify_one();
  }
  // Until all jobs are done; throws what the first one that failed threw.
  void finish() {
    close();
    drain(false);
    join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }
  void join() {
    close();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  void drain(bool wait) {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        if (wait) ready_.wait(lock, [&] { return closed_ || !queue_.empty(); });
        if (queue_.empty()) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      try {
        job();
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool closed_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace braze::codegen
