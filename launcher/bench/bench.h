#pragma once

#include "bench/collective_report.h"
#include "bench/report.h"

/// Each is run by every rank of a job and returns its exit code.
namespace tutti::bench {

/// What the parts that failures are handled with cost when nothing fails: flight recorder, agreement.
int price(int argc, char** argv);
/// Calls a second, call and sync, wake-up, CPU of idle ranks, start of a session.
int control(int argc, char** argv, const Options& options);
/// Host arrays to worker 0 and back, to all.
int copy(int argc, char** argv, const Options& options);
/// A sharded tensor of so many bytes ("256M") goes to other places; 1 when data was wrong.
int redistribute(int argc, char** argv, const Options& options, const std::string& size);
/// Sharded tensors of so many bytes are saved in a folder and loaded; 1 when data was wrong.
int checkpoint(int argc, char** argv, const Options& options, const std::string& size, const std::string& folder);
/// One collective by its name, over sizes; 1 when data was wrong.
int collective(int argc, char** argv, const std::string& operation, const CollectiveOptions& options);

}  // namespace tutti::bench
