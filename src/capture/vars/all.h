// Every kind of variable.
#pragma once
#include "capture/vars/array.h"
#include "capture/vars/constant.h"
#include "capture/vars/dict.h"
#include "capture/vars/function.h"
#include "capture/vars/host.h"
#include "capture/vars/iterator.h"
#include "capture/vars/itertool.h"
#include "capture/vars/key.h"
#include "capture/vars/object.h"
#include "capture/vars/sequence.h"
#include "capture/vars/set.h"
#include "capture/vars/tensor.h"
