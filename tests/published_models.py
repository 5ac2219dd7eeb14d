"""Published parameter counts: the totals that the catalogue must reproduce, and where they are.

"hub" is `safetensors.total` of the model's page on the Hugging Face hub, the
number of elements in its weight files; "keras" is the preset in keras-hub.
"""

# name in the catalogue, total, where published
TOTALS = (
    ("gpt2", 124_439_808, "keras gpt2_base_en"),
    ("gpt2-medium", 354_823_168, "keras gpt2_medium_en"),
    ("gpt2-large", 774_030_080, "keras gpt2_large_en"),
    ("gpt2-xl", 1_557_611_200, "keras gpt2_extra_large_en"),
    ("gpt-neox-20b", 20_554_567_680, "model card EleutherAI/gpt-neox-20b"),
    ("pythia-70m", 70_426_624, "model card EleutherAI/pythia-70m"),
    ("pythia-160m", 162_322_944, "model card EleutherAI/pythia-160m"),
    ("pythia-410m", 405_334_016, "model card EleutherAI/pythia-410m"),
    ("pythia-1b", 1_011_781_632, "model card EleutherAI/pythia-1b"),
    ("pythia-1.4b", 1_414_647_808, "model card EleutherAI/pythia-1.4b"),
    ("pythia-2.8b", 2_775_208_960, "model card EleutherAI/pythia-2.8b"),
    ("pythia-6.9b", 6_857_302_016, "model card EleutherAI/pythia-6.9b"),
    ("pythia-12b", 11_846_072_320, "model card EleutherAI/pythia-12b"),
    ("opt-125m", 125_239_296, "AMD Quark's tutorial on pruning opt-125m"),
    ("opt-1.3b", 1_315_758_080, "comment in a public FSDP and LoRA script on opt-1.3b"),
    ("opt-6.7b", 6_666_862_592 - 8_388_608, "PEFT's int8 example: all less trainable (LoRA)"),
    ("bloom-7b1", 7_069_016_064, "hub bigscience/bloom-7b1"),
    ("bloom-176b", 176_247_271_424, "hub bigscience/bloom, in huggingface.js' tests"),
    ("bert-base", 110_106_428, "hub google-bert/bert-base-uncased, in huggingface.js' tests"),
    ("bert-large", 336_226_108, "hub google-bert/bert-large-uncased"),
    ("llama-2-7b", 6_738_415_616, "keras llama2_7b_en"),
    ("llama-2-13b", 13_015_864_320, "hub codellama/CodeLlama-13b-Instruct-hf (same shapes)"),
    ("llama-2-70b", 68_976_648_192, "AuroraGPT-70B performance study (same shapes)"),
    ("llama-3-8b", 8_030_261_248, "hub meta-llama/Llama-3.1-8B"),
    ("llama-3-70b", 70_553_706_496, "hub meta-llama/Llama-3.1-70B"),
    ("llama-3.1-405b", 405_853_388_800, "hub meta-llama/Llama-3.1-405B"),
    ("mistral-7b", 7_241_732_096, "hub mistralai/Mistral-7B-v0.1"),
    ("mixtral-8x7b", 46_702_792_704, "keras mixtral_8_7b_en"),
    ("mixtral-8x22b", 140_620_634_112, "hub mistral-community/Mixtral-8x22B-v0.1"),
    ("qwen2-0.5b", 494_032_768, "keras qwen2.5_0.5b_en (same shapes)"),
    ("qwen2-1.5b", 1_543_714_304, "keras qwen2.5_math_1.5b_en (same shapes)"),
    ("qwen2-7b", 7_615_616_512, "keras qwen2.5_math_7b_en (same shapes)"),
    ("qwen2.5-14b", 14_770_033_664, "hub Qwen/Qwen2.5-14B"),
    ("qwen2.5-32b", 32_763_876_352, "keras qwen2.5_instruct_32b_en"),
    ("qwen2-72b", 72_706_203_648, "keras qwen2.5_instruct_72b_en (same shapes)"),
    ("qwen3-0.6b", 596_049_920, "num_parameters() in public logs of Qwen3-0.6B"),
    ("qwen3-4b", 4_022_468_096, "hub Qwen/Qwen3-4B"),
    ("qwen3-8b", 8_190_735_360, "hub Qwen/Qwen3-8B"),
    ("qwen3-14b", 14_768_307_200, "keras qwen3_14b_en"),
    ("qwen3-32b", 32_762_123_264, "keras qwen3_32b_en"),
    ("qwen3-30b-a3b", 30_532_122_624, "hub Qwen/Qwen3-30B-A3B"),
    ("qwen3-235b-a22b", 235_093_634_560, "hub Qwen/Qwen3-235B-A22B"),
    ("qwen1.5-moe-a2.7b", 14_315_784_192, "hub Qwen/Qwen1.5-MoE-A2.7B"),
    ("qwen2-57b-a14b", 57_408_658_944, "hub Qwen/Qwen2-57B-A14B"),
    ("deepseek-v2-lite", 15_706_484_224, "hub deepseek-ai/DeepSeek-V2-Lite"),
    ("deepseek-v2", 235_741_434_880, "hub deepseek-ai/DeepSeek-V2"),
    ("deepseek-v3", 671_026_419_200, "hub microsoft/MAI-DS-R1 (same shapes, no MTP module)"),
)

# Files of the hub that hold more than the trained parameters, once each.
LLAMA2_HUB_TOTALS = (
    ("llama-2-7b", 6_738_417_664),
    ("llama-2-13b", 13_015_866_880),
    ("llama-2-70b", 68_976_653_312),
)
QWEN3_HUB_TOTALS = (("qwen3-0.6b", 751_632_384), ("qwen3-1.7b", 2_031_739_904))
DEEPSEEK_R1_HUB_TOTAL = 684_489_845_504
DEEPSEEK_V3_HUB_TOTAL = 684_531_386_000

# "number of parameters on (tensor, pipeline) model parallel rank", as Megatron-LM prints it:
# model, its vocabulary once padded, tp, pp, stage, count, where
MEGATRON_LOGS = (
    ("gpt2-medium", 50304, 1, 1, 0, 354_871_296, "GPT-2 345M"),
    ("gpt2-medium", 50432, 2, 1, 0, 178_100_224, "GPT-2 345M"),
    ("gpt2-medium", 50688, 4, 1, 0, 89_714_688, "GPT-2 345M"),
    ("gpt2-large", 50432, 2, 2, 0, 210_753_280, "Accelerate's guide to Megatron-LM"),
    ("gpt2-large", 50432, 2, 2, 1, 209_445_120, "Accelerate's guide to Megatron-LM"),
    ("qwen2-0.5b", 151936, 2, 1, 0, 247_038_336, "verl, Qwen2.5-0.5B"),
    ("qwen2-7b", 152064, 4, 2, 0, 952_026_880, "verl, Qwen2.5-7B"),
)

# SC'21 (arXiv:2104.04473), table 1: billions of parameters as printed, layers, hidden, heads.
SC21_TABLE_1 = (
    ("1.7", 24, 2304, 24),
    ("3.6", 30, 3072, 32),
    ("7.5", 36, 4096, 32),
    ("18.4", 40, 6144, 48),
    ("39.1", 48, 8192, 64),
    ("76.1", 60, 10240, 80),
    ("145.6", 80, 12288, 96),
    ("310.1", 96, 16384, 128),
    ("529.6", 105, 20480, 128),
    ("1008.0", 128, 25600, 160),
)
