"""Full stops that end no sentence: those of abbreviations, initials, ordinal numbers and numbers of a list."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Languages that write "3. Oktober", and those that have words with r or l in place of a vowel: "prst", "vlk".
_SYLLABIC = {"bs", "cs", "hr", "mk", "sk", "sl", "sr"}
_ORDINAL_STOPS = {"da", "de", "et", "fi", "hu", "is", "lb", "lv", "nb", "nn", "no", "pl", "tr", *_SYLLABIC}
_GERMAN_MONTHS = ("Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")
_NEARLY: dict[str | None, str] = {"no": "nb", "nn": "nb", "bs": "hr", "ms": "id"}
_LONGEST = 60  # characters before a full stop that are looked at
_LIST_NUMBER = re.compile(r"[(\[]?(\d{1,3}|[^\W\d_])\.")
_ORDINAL = re.compile(r"(?<![\w.,])(\d{1,2}|[IVX]{2,})\.$")
_WORD = r"[^\W\d_ªº°]+[ªº°]?"
_BEFORE_WORD = r"(?:(?P<number>\d\s?)|^|[\s(\[{\"“„«/–—\-]|['’‘](?=\w\w))"
_LAST_WORD = re.compile(rf"(?P<first>\b\w{{1,2}}\.)?{_BEFORE_WORD}(?P<word>{_WORD}(?:[.:\-]+{_WORD})*)\.$")
_BETWEEN_WORDS = re.compile(r"[.:\-]+")
# A word without a vowel, its marks apart, in the scripts that have capitals and vowels.
_CONSONANTS = re.compile("[b-df-hj-np-tv-xzßđłβγδζθκλμνξπρ-τφ-ψбвгджзклмнпрстфхцчшщьґ\u0300-\u036f]+")

# By ISO 639-1 code, in small letters, without the last full stop. Those of single letters ("z. B.", "т. е.") and those
# without a vowel ("Dr.", "кв.") are known by their shape.
ABBREVIATIONS = {
    "en": (
        "adm al* alt* approx apr assn assoc aug ave bros ca capt co* col comp corp dec def* dept det* diff dist "
        "ed eds eq esq est* etc feb fig figs gen gov hon* inc intl jam* jan jul jun lieut maj* mar* messrs misc "
        "natl no* nos* nov oct op* pres prof pub ref refs* rep rev sec* sen* sept supt univ vol* vols*"
    ),
    "de": (
        "abb abs* abschn abt adr ahd allg alt* amtl anm app aufl ausg bed* beil bes best* bez* bibl ca chin dat* "
        "dez dim dipl dipl.-ing dir* ebd ehem eigtl einschl engl entspr erg* etc etw ev evtl exkl fa* fam geb "
        "gebr gek* gem geogr ges* gesch gest gez hist ill ing inh inkl insb insbes internat ital jahrh jan jap "
        "jew jun kap* kath lat* led* math max min* mind* mio* möbl nat nov näml nördl obb obj* offz okt op* phys "
        "prof proz reg russ röm schweiz schwäb sen* sept sog span spezif stellv städt säm südd südl tab* tel "
        "temp* test* tägl ugs univ univ.-prof urspr ursprüngl usf usw verf verh vers* verw vorm* westl wiss zeitl "
        "ziff zit* österr östl"
    ),
    "fr": (
        "acoust adj adr anc ann anon ap* appt apr art* aux av* avr biblio boul broch bull categ chap coll config* "
        "dest* dict* dir* doc déc dép encycl env* etc ex* exempl fasc fig févr gouv graph gén hab* hôp ibid id* "
        "ill illustr imm imprim indus inéd janv jeu juill lieut lun max me* mer* min* mlle mlles mme mmes niv nov "
        "oct op* ouvr paragr pers prof préf publ quart resp réf sept ste* sté suiv sup symb synth syst trad trav "
        "tél ven* voit* vol* éd édit équiv éval"
    ),
    "es": (
        "abr abs* admor admón afma afmas afmo afmos aprox arq art* arts atte av* avda ayto cap* col cía dcha "
        "depto deptos dic dir* dpto dptos dra dras dtor dña ed edit ej* ene* entlo esc etc excma excmas excmo "
        "excmos exma exmo feb fig gob gral ilma ilmas ilmo ilmos ing izq izqda lcda lcdo lic licda licdo mar* "
        "mons mtro máx mín* nov ntra ntro núm núms oct op* pdta pdte prof profa prov pról pág págs párr rdo rdos "
        "ref reg rte rvdmo rvdo rvdos sec* sept sra sras sres srta srtas sta* sto* tel trab trad tít ud* uds univ "
        "vda vid* vol*"
    ),
    "it": (
        "abbr all* apr arch art* artt avv bibl ca cap* cass cav circ civ co* cod col comm dic div dott ecc ed egr "
        "es* fam febb fig figg gen gent* geom giu giur giust id* ill ing int* lett* mag* magg max min* mod* mons "
        "nov on* op* ott* pag* pagg par* pen prof proff prot prov rag rass reg rep sec* sen* serg sett* sez sig* "
        "sigg sost spett suppl tab* tav tel vol* voll*"
    ),
    "pt": (
        "abr abrev adv ago* agric al* anat* apart* aprox arit arq arqueol arquit art* arts astron autom av* bras* "
        "cap* cat* cel* cia com* comp contab créd círc cód códs dep des* desc dez dir* div dra dras ed edif eds "
        "elem elet eletr eng esp* est* etc ex* exa exas exma exmo fac* fasc fem* fev fig figs fil filos fisiol "
        "fís gen geom gov gram hist ilma ilmo ind* ingl jan jul jun jur lat* lic lin lit* liter loc ltda mat* "
        "matem min* mov máq máx méd mín* mús neol nov núm obs odont org* out* pe* port* prod prof profa profas "
        "pron próx pág págs quím ref rel rod sarg sen* set* sociol sra sras srs srta sta* sto* sup séc sécs símb "
        "tec tecnol tel ten* trad transp tít univ vol* vols* álg índ"
    ),
    "nl": (
        "aanh aant aanw abs* adj afb afd* afk afl alg apr art* aug begr bijv bijz burg* ca dec dir* eerw enz etc "
        "event* evt excl febr fig gebr gem gen geref id* incl ing inst int* ir* jan katern max mej mevr min* "
        "nederl nov oct okt oorspr opm pag* par* penn prof red* ref resp secr sept tab* tel temp* uitg univ verg "
        "verm vert vol* voorz wed"
    ),
    "sv": (
        "adr allm ang* anm art* aug avd bil* ca dec dir* doc eg* ekon enl ent etc ev ex* exkl exp* febr fig följ "
        "förf förk gen inkl inst jan kap* kungl max milj min* mom* motsv nov obs okt osv prof red* ref resp s:t "
        "sek sept sign* tab* tekn tel teol tidn univ uppl utg övers"
    ),
    "da": (
        "adj adm adr afd* alm ang* ann art* aug bem* ca dec dir* eks ekskl etc ev ex* feb fig gen indb inkl int* "
        "isl jan kap* max mia* min* mio* nat nov nuv okt osv overs pga* prof red* ref resp sek sekr sept såk tab* "
        "tel tidl udg ult univ vedr"
    ),
    "nb": (
        "adm adr ang* ann art* aug avd ca des* div eg* eks ekskl el* etc ev feb fig forf fork gen inkl jan kap* "
        "maks mill min* nov obs okt oppr osv overs pga* prof red* ref resp sek sept tab* tel univ utg vedr årg"
    ),
    "fi": (
        "alk apul ark ed ekr em* engl ent esim huom ilm ins* ja* jatk jkr jne julk kand kap* kaup kirj klo ko* "
        "kok lis luv maist maks max milj min* muist muk myöh nro nyk oik op* os* par* po* prof puh puol rist "
        "ruots saks seur siht sis* skand suom synt tal* tod* toht toim tri* tuom us* virall vuos yht ylim ym yms "
        "yo*"
    ),
    "pl": (
        "abp al* całk chor cont doc dosł dyr* ew gen godz gosp hab* im* in* inż itd itp kard kom* kśw lek lic "
        "m.in maks marsz mec* mies* min* nast niem ob* odc ok* oo* org* os* par* pol* por* pow poz prof prow "
        "przew przyp pułk późn red* reż roz rozdz ryc rys sek stpol suł tab* tel ten* tow tys tłum ub ul ul* ur* "
        "ust vol* wicew woj wyd zach zał zob łac śp św"
    ),
    "cs": (
        "alb angl apod arch atd atp bot bývl bł cca chem d.t dat* dem* doc dr* ev franc fyz gen hist hod ind* "
        "inf* ing jap judr kap* kat* katol kol* kr* lat* lit* max mezin mil* min* miss* mj mjr ml mld mn mod* "
        "mudr např nar novináč nám* násl něm obch obr odb odd odst ok* op* os* ozn paedr po* pokr pol* polit popř "
        "pozn prof prov proz pí pís předn přib rad* red* rep resp roz roč rus samost sb* sev* skl sl slov souč "
        "spol srov st* stol str* stř sv tab* tel thdr tis tj tur* tzn tzv tř ul* univ ved* vedl vl vnitř vol* vyd "
        "vz vých výr vč věd věn vůb zahr zast zejm zem* zkr zn zvl zákl záp čes žid"
    ),
    "sk": (
        "angl apod arch atp atď bl býv cca doc gen hist hod ind* ing judr kap* kat* kol* lat* max mil* min* ml "
        "mld mn mudr najm napr nar nasl nem* nám* obr obv ods* os* ozn paeddr pod* pol* por* porov pozn prof príp "
        "písm red* rep resp roč rus skr sl slov spol st* sv tab* tel tis tj tz* tzn tzv ul* univ vr vyd vých zn "
        "zodp zom zv záp čes štát"
    ),
    "hu": (
        "adj ajt alez aug bek dec div febr fej fiz* ford főn hiv id* ifj ill irsz jan jegyz júl jún kat* ker* kgy "
        "max min* máj márc nagys no* ny* nyug okl okt old* ord* org* orsz prof ref rend róm szept szerk szerz "
        "tan* tel ti* törv ui vas* vö ált ápr érk özv ún"
    ),
    "ro": (
        "adj adv alin aprox apt arh art* av* bis* bul cap* cca col com* conf* dec dep dna ed etc ex* fam febr "
        "fem* fig gen geogr ian ibid ing inv ist* jud lat* lect lit* loc max mil* min* nov obs oct op* pag* par* "
        "pop pref prof ref reg sec* sept soc* subst tel tov trad vol*"
    ),
    "ru": (
        "авг адм акад анат англ апр араб арх бул бывш воен вост вып ген гор гос греч дек ден* деп дер диал дир "
        "дол долл доп доц евр ед ж.-д* жен зав зам зап затм изд ил илл им* ин* инж исп ист ит итал кав каз кол "
        "комн коп кор корп куб лат лит макс мин мор муж наз напр нар нач нем несоверш нояб об обл обр общ оз ок* "
        "окт орг осн отв отд офиц пер петерб пол* польск пом пос пред* прибл прил прим прол просп проф проч псевд "
        "рад* разг ред* реж респ рим рис род рожд рос руб рук русск сев сек сент сер соб собр сов совм соч табл "
        "тел тов тыс ум ур урож уч фам февр фиг филол франц хоз чел экз этн юж яз янв"
    ),
    "uk": (
        "авт акад англ буд бульв вид* вип вул ген гол дол доц ек ел жін зав заг зам зах коп корп кін лат лют макс "
        "муз мін напр нар нім обл оз ор пер пом пор* пос приблиз прим пров просп проф ред* респ рис розд рос сер "
        "сот стор січ табл тел тис тов том* укр ун-т фіг ілл ім* ін* інж"
    ),
    "bg": (
        "op* авг авт акад ал англ ап апр арх бел бул бълг възм ген дек дир доц евр ез ет ж.к зам зап изд изт им* "
        "инж кап лат макс мин напр нар нем ноем обл общ ок* окт осн пор* прев прибл проф ред* респ род руб сев "
        "сек септ т.нар табл тел ул упр фев фиг хил юж ян"
    ),
    "el": (
        "άρθ άρθρ έτ αγ αγγλ αι αιτ ανδρ αντ απρ αρ αριθ αρχ αυγ βασ βι γαλλ γεν γερμ δεκ δηλ διδ δις δισ εδ εικ "
        "εκατ εκδ ενν επ επίθ επίσ επιμ ιαν ιδ ιουλ ιουν ιταλ κα καθ κεφ κυβ λίβ λατ λεωφ μάρτ μετ νοεμ οδ οκτ οπ "
        "πίν παρ περ πλατ ποσ πρόεδρ σελ σεπτ σημ συγγρ τετρ τηλ τομ τόμ υπ υποσ υποστρ υπουργ φεβρ χιλ όπ"
    ),
    "tr": (
        "adl age* alb alm ank apt ar* arş asb ast* astsb atğm av* avr bot bul bulv bçvş böl bşk cad coğ dak diz* "
        "doç doğ ecz ed ens* erm ev fak fel* fiz* gen ges* hav haz hek ing is* jeo kim* kom* kor* krş mad* mah "
        "mal* mat* müh müz no* nu* nö okt opr ord* org* ort* prof psik sok* soy* tar* tel tic tüm tümg tğm uz* "
        "yak* yay yb yd yrb yrd yy yzb yüz zool çev çvş ölç ör örn öğr üniv ünl üstğm üçvş şb şek şti"
    ),
    "hr": (
        "akad bl br doc dr* engl fol ga* gen god* gosp gđa gđica im* ing inž itd izd izv kap* kat* kn kol* kr* "
        "lat* lip maks mil* min* mj ml mlrd mons mr njem* npr odj odn odv op* opć os* ož pog pogl pok por* pos* "
        "pov pr predsj prev prim* prir prof pros reg rođ ruj sij sl sred st* stom str* stud sv svib tab* tal* tel "
        "tis tj toč tzv uklj ul* up* ur* usp vel* vet* vj vlč zap zast zb čl đak žup"
    ),
    "sl": (
        "akad al* angl arh avg avt dec doc dr* feb fig fr ga* gdč gen gl idr ing inv inž ipd itd itn izd jan jul "
        "jun kat* kol* lat* lit* mag* maks mdr min* mio* mrd nar nem* nov npr odd odst odv ok* okt op* or* os* oz "
        "pog pogl por* pr pred* prev pribl prim* prir prof rim roj sept sl sod spec* st* str* sv tab* tel tis tj "
        "ul* umrl univ ur* vklj zal* zap zb zv št"
    ),
    "sr": (
        "akad bl br doc dr* gen god* gđa gđica inž itd izd kn maks mil* min* mlrd mr npr odn pogl prof rođ sl st* "
        "str* sv tab* tel tj tzv uklj ul* usp čl акад бр ген год* гђа гђица доц др ем енгл изд им* инж итд кап "
        "кат ком књ лат макс мат мил мин млрд мр нем нов* нпр одн окт оп општ пог погл пок пом пор* прев предс "
        "прим проф ред* рођ сарад св сл ст стр таб тел тзв тј укљ ул упор ур хиљ чл"
    ),
    "id": (
        "bag* dra hal* inc ir* jend kab kec kel kep kol* max min* mis* no* ny* prof prov sdri tel telp vol* yth yts"
    ),
}


def ends_no_sentence(before: str, after: str, language: str | None) -> bool:
    """Whether a sentence that seems to end with `before` goes on.

    Args:
        before: what stands before the supposed end, without white space behind it.
        after: what follows.
        language: ISO 639-1 code; None if it is not known.

    >>> [ends_no_sentence(before, "Berlin", "de") for before in ("Das ist z. B.", "bzw.", "Am 3.", "Ein Haus.")]
    [True, True, True, False]
    """
    if _LIST_NUMBER.fullmatch(before):
        return True
    before = unicodedata.normalize("NFC", before[-_LONGEST:])
    space = before.rfind(" ")  # no match begins more than four characters before it, so no search does
    if ordinal := _ORDINAL.search(before, space + 1):
        return language in _ORDINAL_STOPS if language else ordinal[1].isdigit() and after.startswith(_GERMAN_MONTHS)
    if not (last := _LAST_WORD.search(before, space - 4)):
        return False
    word, small = last["word"], last["word"].lower()
    parts = _BETWEEN_WORDS.split(small)
    if small in abbreviations(language):
        return True
    if last["number"]:  # a unit may end a sentence: "5 km."
        return False
    title = language is None and word.istitle() and len(word) > 2  # not "Ja.", which may be an answer
    if (title or last["first"] or after[:1].isdigit()) and small in abbreviations(None, sure=False):
        return True  # "Sig. Rossi", "p. ex.", "art. 5"
    if len(parts[0]) <= 2 and len(parts) > 1 and max(map(len, parts)) <= 3:
        return True  # "z.B."
    if len(small) == 1:
        return language not in ("en", None) or not small.isascii() or small == word
    consonants = _CONSONANTS.fullmatch(unicodedata.normalize("NFD", parts[-1]))
    return consonants is not None and word != word.upper() and language not in _SYLLABIC


@cache
def abbreviations(language: str | None, sure: bool = True) -> frozenset[str]:
    """Those of a language; for None those of all languages, without those that are words in another if `sure`."""
    own = ABBREVIATIONS.get(_NEARLY.get(language, language or ""))
    words = (own or " ".join(ABBREVIATIONS.values())).split()
    unsure = frozenset(word[:-1] for word in words if word.endswith("*"))
    return frozenset(words) | unsure if own or not sure else frozenset(words) - unsure
