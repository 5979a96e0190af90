#pragma once

namespace tutti::bench {

/// What the parts that failures are handled with cost when nothing fails: flight recorder, agreement. Run by every rank of a job.
int price(int argc, char** argv);

}  // namespace tutti::bench
