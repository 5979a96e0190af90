// Everything of tutti.
#pragma once

#include "tutti/action.h"
#include "tutti/checkpoint.h"
#include "tutti/device.h"
#include "tutti/distributed.h"
#include "tutti/dlpack.h"
#include "tutti/dtype.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/program.h"
#include "tutti/session.h"
#include "tutti/tensor.h"
#include "tutti/value.h"
#include "tutti/version.h"
#include "tutti/worker.h"
