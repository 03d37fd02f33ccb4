/* Keys that are missing, or contradict each other; layers. Included by test_broken.c, which says what the
 * columns are. */
/* clang-format off */
{"no name", "name = \"t\";", "",
 "job.cfg: name: found nothing, expected a name in quotes, without / and not starting with a dot\n"},
{"no model", "model: { type = \"mlp\"; classes = 10; hidden = [8]; };", "",
 "job.cfg: model.type: found nothing, expected \"mlp\" or \"layers\"\n"
 "job.cfg: model.classes: found nothing, expected an integer from 2 to 1000000\n"},
{"no model type", "type = \"mlp\";", "",
 "job.cfg:2: model.type: found nothing, expected \"mlp\" or \"layers\"\n"},
{"no classes", "classes = 10;", "",
 "job.cfg:2: model.classes: found nothing, expected an integer from 2 to 1000000\n"},
{"no data", "data: { format = \"idx\"; train: { images = \"a\"; labels = \"b\"; }; };", "",
 "job.cfg: data.format: found nothing, expected \"idx\"\n"
 "job.cfg: data.train.images: found nothing, expected a path in quotes\n"
 "job.cfg: data.train.labels: found nothing, expected a path in quotes\n"},
{"no data format", "format = \"idx\";", "",
 "job.cfg:3: data.format: found nothing, expected \"idx\"\n"},
{"no training labels", "labels = \"b\";", "",
 "job.cfg:3: data.train.labels: found nothing, expected a path in quotes\n"},
{"no batch", "global_batch = 8;", "",
 "job.cfg:4: train.global_batch: found nothing, expected an integer from 1 to 1048576\n"},
{"no optimizer type", "type = \"adamw\";", "",
 "job.cfg:5: optimizer.type: found nothing, expected \"sgd\" or \"adamw\"\n"},
{"no learning rate", "lr = 0.1;", "",
 "job.cfg:5: optimizer.lr: found nothing, expected a number above 0 and up to 1000\n"},
{"no layers", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10;",
 "job.cfg:2: model.layers: found nothing, expected a list of layers such as ( { type = \"relu\"; }, ... ) because model.type = \"layers\"\n"},
{"hidden with layers", "\"mlp\"; classes = 10; hidden = [8];", "\"layers\"; classes = 10; hidden = [8]; layers = ( { type = \"relu\"; } );",
 "job.cfg:2: model.hidden: found with model.type = \"layers\", expected only with \"mlp\"\n"},
{"layers with mlp", "hidden = [8];", "hidden = [8]; layers = ( { type = \"relu\"; } );",
 "job.cfg:2: model.layers: found with model.type = \"mlp\", expected only with \"layers\"\n"},
{"momentum with adamw", "lr = 0.1;", "lr = 0.1; momentum = 0.5; nesterov = true;",
 "job.cfg:5: optimizer.momentum: found with optimizer.type = \"adamw\", expected only with \"sgd\"\n"
 "job.cfg:5: optimizer.nesterov: found with optimizer.type = \"adamw\", expected only with \"sgd\"\n"},
{"betas with sgd", "type = \"adamw\"; lr = 0.1;", "type = \"sgd\"; lr = 0.1; beta1 = 0.5; beta2 = 0.5; eps = 1e-6;",
 "job.cfg:5: optimizer.beta1: found with optimizer.type = \"sgd\", expected only with \"adamw\"\n"
 "job.cfg:5: optimizer.beta2: found with optimizer.type = \"sgd\", expected only with \"adamw\"\n"
 "job.cfg:5: optimizer.eps: found with optimizer.type = \"sgd\", expected only with \"adamw\"\n"},
{"init_std without normal", "hidden = [8];", "hidden = [8]; init_std = 0.1;",
 "job.cfg:2: model.init_std: found with model.init = \"he\", expected only with \"normal\"\n"},
{"normal without init_std", "hidden = [8];", "hidden = [8]; init = \"normal\";",
 "job.cfg:2: model.init_std: found nothing, expected a number above 0 and up to 100 because model.init = \"normal\"\n"},
{"init_std with layers", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; init_std = 0.1; layers = ( { type = \"relu\"; } );",
 "job.cfg:2: model.init_std: found with model.type = \"layers\", expected only with \"mlp\"\n"},
{"keys of an unknown optimizer are not judged", "type = \"adamw\";", "type = \"adam\"; beta1 = 0.5; momentum = 0.5;",
 "job.cfg:5: optimizer.type: found the string \"adam\", expected \"sgd\" or \"adamw\"; did you mean \"adamw\"?\n"},
{"final with a constant schedule", "lr = 0.1;", "lr = 0.1; schedule: { final = 0.1; };",
 "job.cfg:5: optimizer.schedule.final: found with optimizer.schedule.type = \"constant\", expected only with \"cosine\", \"linear\"\n"},
{"gamma with a cosine schedule", "lr = 0.1;", "lr = 0.1; schedule: { type = \"cosine\"; gamma = 0.1; };",
 "job.cfg:5: optimizer.schedule.gamma: found with optimizer.schedule.type = \"cosine\", expected only with \"step\"\n"},
{"step schedule without every", "lr = 0.1;", "lr = 0.1; schedule: { type = \"step\"; };",
 "job.cfg:5: optimizer.schedule.every: found nothing, expected an integer from 1 to 1e12 because optimizer.schedule.type = \"step\"\n"},
{"schedule as text", "lr = 0.1;", "lr = 0.1; schedule = \"cosine\";",
 "job.cfg:5: optimizer.schedule: found the string \"cosine\", expected a group { ... }\n"},
{"negative warmup", "lr = 0.1;", "lr = 0.1; schedule: { warmup = -1; };",
 "job.cfg:5: optimizer.schedule.warmup: found the integer -1, expected an integer from 0 to 1e12\n"},
{"neither steps nor epochs", "steps = 5;", "",
 "job.cfg:4: train: found neither steps nor epochs, expected one of them; add epochs = 10;\n"},
{"both steps and epochs", "steps = 5;", "steps = 5; epochs = 5;",
 "job.cfg:4: train: found both steps and epochs, expected one of them; remove the other\n"},
{"wrong steps beside epochs", "steps = 5;", "steps = 0; epochs = 5;",
 "job.cfg:4: train.steps: found the integer 0, expected an integer from 1 to 1e12\n"
 "job.cfg:4: train: found both steps and epochs, expected one of them; remove the other\n"},
{"micro-batch larger than the batch", "steps = 5;", "steps = 5; micro_batch = 16;",
 "job.cfg:4: train.micro_batch: found 16, expected at most global_batch = 8; write micro_batch = 8; or \"auto\"\n"},
{"micro-batch does not divide", "steps = 5;", "steps = 5; micro_batch = 3;",
 "job.cfg:4: train.micro_batch: found 3, expected a divisor of global_batch = 8; write micro_batch = 2; or 4\n"},
{"test images without labels", "labels = \"b\"; };", "labels = \"b\"; }; test: { images = \"c\"; };",
 "job.cfg:3: data.test: found images without labels, expected both or neither; add labels = \"...\";\n"},
{"test labels without images", "labels = \"b\"; };", "labels = \"b\"; }; test: { labels = \"c\"; };",
 "job.cfg:3: data.test: found labels without images, expected both or neither; add images = \"...\";\n"},
{"mean and std of different lengths", "format = \"idx\";", "format = \"idx\"; mean = [0, 0, 0]; std = [1, 1];",
 "job.cfg:3: data: found 3 values of mean and 2 of std, expected as many of one as of the other\n"},
{"nesterov without momentum", "type = \"adamw\"; lr = 0.1;", "type = \"sgd\"; lr = 0.1; momentum = 0; nesterov = true;",
 "job.cfg:5: optimizer.nesterov: found true with momentum = 0, expected a momentum above 0, such as 0.9\n"},
{"no layer", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( );",
 "job.cfg:2: model.layers: found an empty list, expected at least one layer\n"},
{"layer without type", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { kernel = 3; } );",
 "job.cfg:2: model.layers[0].type: found nothing, expected one of \"conv\", \"batch_norm\", \"relu\", \"gelu\", \"max_pool\", \"avg_pool\", \"global_pool\", \"flatten\", \"linear\", \"dropout\" and \"residual\"\n"},
{"unknown layer type", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"conf\"; kernel = 3; } );",
 "job.cfg:2: model.layers[0].type: found the string \"conf\", expected one of \"conv\", \"batch_norm\", \"relu\", \"gelu\", \"max_pool\", \"avg_pool\", \"global_pool\", \"flatten\", \"linear\", \"dropout\" and \"residual\"; did you mean \"conv\"?\n"},
{"unknown layer type, far", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"attention\"; heads = 3; } );",
 "job.cfg:2: model.layers[0]: found the unknown key heads, expected a key of a layer\n"
 "job.cfg:2: model.layers[0].type: found the string \"attention\", expected one of \"conv\", \"batch_norm\", \"relu\", \"gelu\", \"max_pool\", \"avg_pool\", \"global_pool\", \"flatten\", \"linear\", \"dropout\" and \"residual\"\n"},
{"layer key of another type", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"conv\"; filters = 3; kernel = 3; units = 5; } );",
 "job.cfg:2: model.layers[0].units: found with type = \"conv\", expected only with \"linear\"; a conv layer takes filters, kernel, stride, pad, bias, init\n"},
{"keys of a layer that has none", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"relu\"; stride = 3; } );",
 "job.cfg:2: model.layers[0].stride: found with type = \"relu\", expected only with \"conv\", \"max_pool\", \"avg_pool\"; a relu layer takes no other keys\n"},
{"unknown layer key", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"conv\"; filters = 3; kernal = 3; } );",
 "job.cfg:2: model.layers[0]: found the unknown key kernal, expected a key of a layer; did you mean kernel?\n"
 "job.cfg:2: model.layers[0].kernel: found nothing, expected an integer from 1 to 255 because type = \"conv\"\n"},
{"convolution without its keys", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"conv\"; } );",
 "job.cfg:2: model.layers[0].filters: found nothing, expected an integer from 1 to 65536 because type = \"conv\"\n"
 "job.cfg:2: model.layers[0].kernel: found nothing, expected an integer from 1 to 255 because type = \"conv\"\n"},
{"linear without units", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"linear\"; } );",
 "job.cfg:2: model.layers[0].units: found nothing, expected an integer from 1 to 1048576 because type = \"linear\"\n"},
{"dropout without rate", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"dropout\"; } );",
 "job.cfg:2: model.layers[0].rate: found nothing, expected a number from 0 to below 1 because type = \"dropout\"\n"},
{"dropout rate", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"dropout\"; rate = 1.5; } );",
 "job.cfg:2: model.layers[0].rate: found the number 1.5, expected a number from 0 to below 1\n"},
{"even more in a layer", "type = \"mlp\"; classes = 10; hidden = [8];",
 "type = \"layers\"; classes = 10; layers = (\n"
 " { type = \"conv\"; filters = 0; kernel = \"3\"; stride = 0;\n"
 " pad = -1; bias = 0; init = \"hee\"; } );",
 "job.cfg:3: model.layers[0].filters: found the integer 0, expected an integer from 1 to 65536\n"
 "job.cfg:3: model.layers[0].kernel: found the string \"3\", expected an integer from 1 to 255; numbers are written without quotes\n"
 "job.cfg:3: model.layers[0].stride: found the integer 0, expected an integer from 1 to 255\n"
 "job.cfg:4: model.layers[0].pad: found the integer -1, expected an integer from 0 to 255\n"
 "job.cfg:4: model.layers[0].bias: found the integer 0, expected true or false\n"
 "job.cfg:4: model.layers[0].init: found the string \"hee\", expected one of \"he\", \"glorot\", \"normal\" and \"zeros\"; did you mean \"he\"?\n"},
{"pad of a pool", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"max_pool\"; kernel = 2; pad = 2; } );",
 "job.cfg:2: model.layers[0]: found pad = 2, expected less than kernel = 2\n"},
{"layer init without init_std", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"linear\"; units = 3; init = \"normal\"; } );",
 "job.cfg:2: model.layers[0].init_std: found nothing, expected a number above 0 and up to 100 because init = \"normal\"\n"},
{"layer init_std without normal", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"linear\"; units = 3; init_std = 0.1; } );",
 "job.cfg:2: model.layers[0].init_std: found with init = \"he\", expected only with \"normal\"\n"},
{"duplicate key in a layer", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"relu\"; type = \"gelu\"; } );",
 "job.cfg:2: found the duplicate key type, expected it once; the first is at job.cfg:2\n"},
{"residual without layers", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"residual\"; repeat = 2; } );",
 "job.cfg:2: model.layers[0].layers: found nothing, expected a list of layers such as ( { type = \"relu\"; }, ... ) because type = \"residual\"\n"},
{"empty residual", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"residual\"; layers = ( ); } );",
 "job.cfg:2: model.layers[0].layers: found an empty list, expected at least one layer\n"},
{"wrong layer in a residual", "type = \"mlp\"; classes = 10; hidden = [8];",
 "type = \"layers\"; classes = 10; layers = (\n"
 " { type = \"residual\"; layers = (\n"
 " { type = \"relu\"; },\n"
 " { type = \"relu\"; units = 1; } );\n"
 " shortcut = ( { type = \"x\"; } ); } );",
 "job.cfg:5: model.layers[0].layers[1].units: found with type = \"relu\", expected only with \"linear\"; a relu layer takes no other keys\n"
 "job.cfg:6: model.layers[0].shortcut[0].type: found the string \"x\", expected one of \"conv\", \"batch_norm\", \"relu\", \"gelu\", \"max_pool\", \"avg_pool\", \"global_pool\", \"flatten\", \"linear\", \"dropout\" and \"residual\"\n"},
{"repeat zero", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"residual\"; repeat = 0; layers = ( { type = \"relu\"; } ); } );",
 "job.cfg:2: model.layers[0].repeat: found the integer 0, expected an integer from 1 to 4096\n"},
{"a stage of ZeRO that does not work yet", "name = \"t\";", "name = \"t\"; parallel: { zero = 2; };",
 "job.cfg:1: parallel.zero: found 2, expected 0 or 1; stages 2 and 3 do not work yet\n"},
{"the last stage of ZeRO", "name = \"t\";", "name = \"t\"; parallel: { zero = 3; };",
 "job.cfg:1: parallel.zero: found 3, expected 0 or 1; stages 2 and 3 do not work yet\n"},
{"no stage of ZeRO", "name = \"t\";", "name = \"t\"; parallel: { zero = 4; };",
 "job.cfg:1: parallel.zero: found the integer 4, expected an integer from 0 to 3\n"},
{"too many layers by repeating", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"residual\"; repeat = 4096; layers = ( { type = \"relu\"; } ); }, { type = \"relu\"; } );",
 "job.cfg:2: model.layers: found more than 4096 layers, repeats counted, expected at most that\n"},
{"too many layers by nesting repeats", "type = \"mlp\"; classes = 10; hidden = [8];", "type = \"layers\"; classes = 10; layers = ( { type = \"residual\"; repeat = 100; layers = ( { type = \"residual\"; repeat = 100; layers = ( { type = \"relu\"; } ); } ); } );",
 "job.cfg:2: model.layers: found more than 4096 layers, repeats counted, expected at most that\n"},
{"all problems at once", NULL,
 "nam = \"x\";\n"
 "model: { type = \"mlp\"; clases = 10; hidden = [5, \"a\"]; };\n"
 "data: { format = \"idx\"; train: { images = \"a\"; }; };\n"
 "train: { steps = 0; global_batch = \"128\"; };\n"
 "optimizer: { type = \"adamw\"; lr = 0.1; momentum = 0.5; };\n",
 "job.cfg:1: found the unknown key nam, expected a key of the top level; did you mean name?\n"
 "job.cfg:2: found the unknown key model.clases, expected a key of model; did you mean classes?\n"
 "job.cfg:2: model.classes: found nothing, expected an integer from 2 to 1000000\n"
 "job.cfg:2: model.hidden[1]: found the string \"a\", expected an integer from 1 to 1048576\n"
 "job.cfg:3: data.train.labels: found nothing, expected a path in quotes\n"
 "job.cfg:4: train.steps: found the integer 0, expected an integer from 1 to 1e12\n"
 "job.cfg:4: train.global_batch: found the string \"128\", expected an integer from 1 to 1048576; numbers are written without quotes\n"
 "job.cfg:5: optimizer.momentum: found with optimizer.type = \"adamw\", expected only with \"sgd\"\n"
 "job.cfg: name: found nothing, expected a name in quotes, without / and not starting with a dot\n"},
    /* clang-format on */
