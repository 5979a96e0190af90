#pragma once

#include "tutti/where.h"

namespace tutti::python {

/// The line of Python that called tutti, good until the next call.
Where here();

}  // namespace tutti::python
